"""What users call: `split`, `split_into`, plans and bindings."""
