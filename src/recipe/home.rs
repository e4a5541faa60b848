//! `~` at the beginning of a recipe's paths is the user's home folder, as in a shell.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::tagged::find_mut;

/// The keys that name files and folders.
pub const PATHS: [&str; 10] = [
    "model.weights",
    "data.corpus",
    "data.template",
    "data.tokenizer",
    "task.path",
    "tuning.adapter",
    "save.weights",
    "save.adapter",
    "save.state",
    "log.folder",
];

/// Puts the home folder in the place of a `~`. Where nobody knows it the path stays as it is.
pub fn expand(root: &mut DeTable<'_>) {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let Some(home) = home.as_ref().and_then(|home| home.to_str()) else { return };
    for path in PATHS {
        let Some(value) = find_mut(root, path) else { continue };
        if let DeValue::String(text) = value.get_mut()
            && let Some(rest) = text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
        {
            *text = format!("{}{rest}", home.trim_end_matches('/')).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::values::Values;
    use crate::recipe::keys;

    #[test]
    fn a_tilde_is_the_home_folder() {
        let home = std::env::var("HOME").expect("tests have one");
        let text = "[model]\nweights = \"~/m\"\n[data]\ncorpus = \"~\"\ntokenizer = \"~other/t\"\n[save]\nstate = \"a~/b\"\n";
        let mut root = DeTable::parse(text).unwrap();
        expand(root.get_mut());
        let mut at = |path| {
            find_mut(root.get_mut(), path).and_then(|value| value.get_ref().as_str()).unwrap().to_string()
        };
        assert_eq!(at("model.weights"), format!("{home}/m"));
        assert_eq!(at("data.corpus"), home);
        assert_eq!(at("data.tokenizer"), "~other/t");
        assert_eq!(at("save.state"), "a~/b");
    }

    /// A new key for a path is in the list.
    #[test]
    fn all_paths_are_listed() {
        PATHS.iter().for_each(|path| assert!(keys::find(path).is_some(), "{path}"));
        for entry in keys::all().iter().filter(|entry| matches!(entry.key.values, Values::Path(_))) {
            assert!(PATHS.contains(&entry.path.as_str()), "{}", entry.path);
        }
    }
}
