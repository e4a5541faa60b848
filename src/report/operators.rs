//! [`as_one`]: one method key for operators that are swept together over networks with different operators.

use super::prelude::*;
use crate::recipe::Cell;
use crate::recipe::keys::is_operator;

/// The key for all swept operators.
pub const KEY: &str = "ops";

/// Where networks have different operators and each cell has all of its own in one way, "all plain" is one method, whatever the
/// operators are: [`KEY`] then replaces their keys in `methods` and `settings`.
pub fn as_one(methods: &mut Vec<String>, cells: &[Cell], settings: &mut [Settings]) {
    let swept: Vec<&str> =
        methods.iter().filter(|key| is_operator(key)).filter_map(|key| key.strip_prefix("ops.")).collect();
    let of_cell = |cell: &Cell| {
        let chosen = cell.chosen_operators().filter(|(name, _)| swept.contains(name));
        chosen.map(|(_, way)| way).collect_vec()
    };
    let ways = cells.iter().map(of_cell).collect_vec();
    if !ways.iter().all(|ways| !ways.is_empty() && ways.iter().all_equal())
        || ways.iter().all(|ways| ways.len() == swept.len())
    {
        return;
    }
    for (settings, ways) in settings.iter_mut().zip(ways) {
        settings.insert(KEY.into(), serde_json::to_value(ways[0]).expect("a word"));
    }
    methods.retain(|key| !is_operator(key));
    methods.push(KEY.into());
}

#[cfg(test)]
mod tests {
    use crate::recipe::{Recipe, Source};
    use crate::report::table::Comparison;

    #[test]
    fn networks_with_different_operators_share_methods() {
        let text = include_str!("../../recipes/operators.toml").replace("\"auto\"", "\"cuda:0\"");
        let source = Source { path: "recipes/operators.toml".into(), text };
        let recipe = Recipe::parse_finished(&source, false).expect("a valid recipe");
        let comparison = Comparison::new(&recipe, &[]);
        assert_eq!(comparison.methods, ["ops plain", "ops custom"]);
        let methods: Vec<usize> = comparison.lines.iter().map(|line| line.method).collect();
        assert_eq!(methods, [0, 1, 0, 1]);
        let baselines: Vec<Option<usize>> = comparison.lines.iter().map(|line| line.baseline).collect();
        assert_eq!(baselines, [0, 0, 2, 2].map(Some));
    }
}
