"""The public API: `split`, `split_into`, plans and bindings."""
