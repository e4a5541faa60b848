//! [`require_threads`]: a number of threads that this machine can run.

use miette::{Result, miette};

use super::variables::number;

/// By which rayon takes the number of threads of its pools, in the runner and in each cell.
pub const THREADS: &str = "RAYON_NUM_THREADS";

/// Most threads for each core. More only wait for each other: every operator wakes all of them, and a cell would seem to
/// hang.
const MOST: usize = 16;

/// Refuses a number of threads that rayon would ignore or no cell would finish with.
///
/// # Errors
/// When the variable is no number, or too large.
pub fn require_threads(lookup: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let help = format!("set {THREADS} to {cores}, as many as this machine has cores, or leave it out");
    let threads = number(lookup, THREADS, &help)?;
    if lookup(THREADS).is_some_and(|text| text != text.trim()) {
        return Err(miette!(help = help, "the variable {THREADS} has blanks around its number"));
    }
    match threads {
        Some(threads) if threads > MOST * cores => Err(miette!(
            help = help,
            "the variable {THREADS} asks for {threads} threads, and this machine has {cores} cores, of at most {MOST} \
             threads each"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_without_end_are_refused() {
        let of = |value: &str| require_threads(&|_| Some(value.into())).map_err(|e| e.to_string());
        assert_eq!([of(""), of("0"), of("2")], [Ok(()), Ok(()), Ok(())]);
        assert!(of("1000000").is_err_and(|e| e.contains("asks for 1000000 threads")));
        assert!(of(" 1").is_err_and(|e| e.contains("blanks")));
        assert!(of("many").is_err_and(|e| e.contains("which is no number")));
    }
}
