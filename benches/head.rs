//! The temporal head against public crates: one table of ratios, goal by goal.
//!
//!     cargo bench --bench head --features peers                   all of them; without the feature those without large crates
//!     cargo bench --bench head                                    peers at default flags, ours chooses its kernel at run time
//!     RUSTFLAGS=-Ctarget-cpu=native cargo bench --bench head      the same, everything built for this machine
//!
//! Contenders alternate sample by sample in one process on one core, so that what else the machine does hits all of them;
//! Criterion measures one after the other, which is why this bench has a loop of its own. A sample takes about 0.12 ms, so
//! that most escape the scheduler; medians are compared. Everything runs with 64 different queries in rotation. Peers run on
//! one thread.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::print_stdout, clippy::type_complexity)]

#[cfg(feature = "peers")]
#[path = "head/dense.rs"]
mod dense;
#[path = "head/measure.rs"]
mod measure;
#[path = "head/memory.rs"]
mod memory;
#[path = "head/patterns.rs"]
mod patterns;
#[path = "head/sparse.rs"]
mod sparse;
#[path = "head/whole.rs"]
mod whole;

use measure::{Effort, pinned};

fn main() {
    // As Criterion has it: `cargo bench` says `--bench`; anything else is a test run.
    let quick = std::env::args().any(|a| a == "--test") || !std::env::args().any(|a| a == "--bench");
    let place = pinned();
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let kernel = aetherd::kernel::Kernel::select(None).unwrap();
    let native = if cfg!(target_feature = "avx2") { "wide vectors everywhere" } else { "default flags" };
    println!("kernel {}, built with {native}, {place}", kernel.features());
    println!("clock before: {}", measure::clock());
    println!();
    println!("{:<4} {:<44} {:>12} {:>12} {:>9}  {:>15}  goal", "", "what", "ours", "peer", "ratio", "p10 to p90");
    sparse::steps(effort);
    sparse::persons(effort);
    memory::allocations(effort);
    memory::full_append(effort);
    sparse::prefill(effort);
    #[cfg(feature = "peers")]
    dense::two_tier(effort);
    memory::bytes(effort);
    #[cfg(feature = "peers")]
    dense::multi_query(effort);
    #[cfg(not(feature = "peers"))]
    println!("G8, G10 compare with ruvllm and Candle: cargo bench --bench head --features peers");
    println!();
    patterns::table(effort);
    println!();
    whole::model(effort);
    println!();
    println!("clock after: {}", measure::clock());
}
