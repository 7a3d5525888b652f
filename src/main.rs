//! The `aetherd` program.

fn main() {}
