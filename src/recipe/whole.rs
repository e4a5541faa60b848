//! [`KEYS`]: the keys of a recipe that are no cell's.

/// As a recipe writes them, and what each is for.
pub const KEYS: [(&str, &str); 10] = [
    ("title", "What the report is called. It must be written."),
    ("question", "What the recipe answers, in a sentence or two."),
    (
        "[grid]",
        "Dotted keys and lists of values, such as `\"train.batch_size\" = [1, 2, 4]`: each combination \
         is a cell, and the last key varies fastest. `[[grid]]`, several tables, joins their cells. \
         `name = \"recompute blocks\"` in a table is what tables and charts call its cells.",
    ),
    (
        "[[ladder]]",
        "In place of a grid: each rung is a cell with the settings of all rungs before it and its own, \
         `name = \"mixed precision\"`, `why = \"...\"`, `set = { \"precision.compute\" = \"bf16\" }`.",
    ),
    (
        "[on_cpu]",
        "Settings that are laid over the recipe's own where it runs on a CPU, and a grid or ladder in place of its own.",
    ),
    (
        "report.baseline",
        "Dotted keys and values of the method that every other one is compared with, at equal sizes: of \
         several such cells the one with the most equal settings. A size among the keys is compared across. Else the first \
         cell of each size, and none where all cells have memory limits that differ.",
    ),
    (
        "report.published",
        "Results published elsewhere: `cell` (dotted keys and values), `forward` and `backward` in \
         seconds, `memory` in GB.",
    ),
    ("report.published_source", "Who published them and on what."),
    (
        "report.ladder",
        "What each cell of a grid is, `name` and `why`, where each improves on the one before.",
    ),
    ("[[set]]", "What `--set` writes at the end of the copy in the results."),
];

/// The dotted path of a key as it is written: `grid` of `[grid]`.
pub fn path(written: &str) -> &str {
    written.trim_matches(['[', ']'])
}
