//! Published models: the parameters of every preset, and the table of families in the docs.

use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::{ConfigFile, LanguageModel, from_hugging_face};
use crate::model::Model;
use crate::model::families::{FAMILIES, Family};
use crate::ops::dense::WeightLayout;

/// Parameters as they are published, or, where fewer digits are, as transformers 5.24 counts those of its model of this
/// `config.json`, a tied head once. docs/language_models.md names what is published.
const PARAMETERS: [(&str, u64); 47] = [
    ("qwen2.5-0.5b", 494_032_768),
    ("qwen2.5-1.5b", 1_543_714_304),
    ("qwen2.5-3b", 3_085_938_688),
    ("qwen2.5-7b", 7_615_616_512),
    ("qwen2.5-14b", 14_770_033_664),
    ("qwen2.5-32b", 32_763_876_352),
    ("qwen3-0.6b", 596_049_920),
    ("qwen3-1.7b", 1_720_574_976),
    ("qwen3-4b", 4_022_468_096),
    ("qwen3-8b", 8_190_735_360),
    ("qwen3-14b", 14_768_307_200),
    ("qwen3-32b", 32_762_123_264),
    ("smollm2-135m", 134_515_008),
    ("tinyllama-1.1b", 1_100_048_384),
    ("llama-3.2-1b", 1_235_814_400),
    ("llama-3.2-3b", 3_212_749_824),
    ("llama-3.1-8b", 8_030_261_248),
    ("mistral-7b-v0.3", 7_248_023_552),
    ("smollm3-3b", 3_075_098_624),
    ("olmo-2-1b", 1_484_916_736),
    ("olmo-2-7b", 7_298_617_344),
    ("gemma-3-270m", 268_098_176),
    ("gemma-3-1b", 999_885_952),
    ("gemma-3-4b", 3_880_263_168),
    ("gemma-3-12b", 11_766_034_176),
    ("phi-4-mini", 3_836_021_760),
    ("gpt2", 124_439_808),
    ("gpt2-medium", 354_823_168),
    ("gpt2-large", 774_030_080),
    ("gpt2-xl", 1_557_611_200),
    // 2 · 50400 · 4096 and a bias, and in each of 28 blocks 12 · 4096² with norms and biases.
    ("gpt-j-6b", 6_050_882_784),
    ("pythia-160m", 162_322_944),
    ("pythia-410m", 405_334_016),
    ("pythia-1b", 1_011_781_632),
    ("pythia-1.4b", 1_414_647_808),
    ("pythia-2.8b", 2_775_208_960),
    ("pythia-6.9b", 6_857_302_016),
    ("t5-small", 60_506_624),
    ("t5-base", 222_903_552),
    ("t5-large", 737_668_096),
    ("t5-3b", 2_851_598_336),
    ("t5-11b", 11_307_321_344),
    // With a head of its own, which transformers 5 makes the embedding until weights say otherwise.
    ("t5-v1_1-small", 76_961_152),
    ("t5-v1_1-base", 247_577_856),
    ("t5-v1_1-large", 783_150_080),
    ("t5-v1_1-xl", 2_849_757_184),
    ("t5-v1_1-xxl", 11_135_332_352),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn preset(family: &Family, name: &str) -> Model {
    toml::from_str(&format!("[{}]\npreset = \"{name}\"", family.kind)).unwrap()
}

#[test]
fn presets_have_the_published_numbers_of_parameters() {
    let presets =
        FAMILIES.iter().flat_map(|family| family.presets.iter().map(move |(name, _)| (family, *name)));
    let counted: Vec<(&str, u64)> =
        presets.map(|(family, name)| (name, preset(family, name).parameters())).collect();
    assert_eq!(counted, PARAMETERS);
}

#[test]
fn every_file_of_a_preset_is_a_preset() {
    let files = fs::read_dir(folder("src/model/families/presets")).unwrap();
    let mut files: Vec<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string()).collect();
    let mut presets = PARAMETERS.map(|(name, _)| name);
    files.sort();
    presets.sort_unstable();
    assert_eq!(files, presets);
}

/// A model of each family: that of a fixture.
fn example(family: &Family) -> LanguageModel {
    let files = WalkDir::new(folder("tests/fixtures")).max_depth(2).sort_by_file_name();
    let folders = files.into_iter().map(|file| file.unwrap().into_path());
    let is_of = |folder: &PathBuf| {
        let kind = ConfigFile::read(folder).ok()?.get("model_type")?.as_str()?.to_string();
        (kind == family.kind).then_some(())
    };
    let found = folders.into_iter().find(|folder| folder.is_dir() && is_of(folder).is_some());
    let model = from_hugging_face(&found.unwrap_or_else(|| panic!("no fixture of {}", family.kind)));
    model.unwrap().language().expect("a family's").clone()
}

/// The table of families, as Markdown.
fn table() -> String {
    let mut out = String::from(
        "| `model.kind` | what its layers have | presets | transformers | linear weights |\n|---|---|---|---|---|\n",
    );
    for family in FAMILIES {
        let Family { kind, class, section, .. } = family;
        let presets =
            family.presets.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let layout = match example(family).architecture().layout {
            WeightLayout::OutIn => "[outputs, inputs]",
            WeightLayout::InOut => "[inputs, outputs]",
        };
        let special = section.doc.trim_end_matches('.');
        out += &format!("| `{kind}` | {special} | {presets} | `{class}` | {layout} |\n");
    }
    out
}

/// `RUNNER_DOCS=write cargo test the_table_of_families` writes it.
#[test]
fn the_table_of_families_in_the_docs_is_current() {
    let path = folder("docs/language_models.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- families -->\n").expect("where the table begins");
    let (written, after) = rest.split_once("<!-- end of families -->").expect("where it ends");
    let table = table();
    if std::env::var("RUNNER_DOCS").is_ok_and(|word| word == "write") {
        let text = format!("{before}<!-- families -->\n{table}<!-- end of families -->{after}");
        return fs::write(path, text).unwrap();
    }
    assert!(written == table, "write it again: RUNNER_DOCS=write cargo test the_table_of_families\n{table}");
}

#[test]
fn the_recipe_of_families_has_a_cell_of_each() {
    let recipe = fs::read_to_string(folder("recipes/families.toml")).unwrap();
    let cells = |family: &&Family| recipe.matches(&format!("model = {{ kind = \"{}\",", family.kind)).count();
    for family in FAMILIES {
        assert!(cells(family) > 0, "{}", family.kind);
    }
}
