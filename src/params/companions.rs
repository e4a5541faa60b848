//! The files beside a model's weights that other programs read: those of its tokenizer and of its chats, and what says how
//! it generates.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A tokenizer's rules and words, its special tokens, and how messages become a prompt: what transformers and the libraries
/// that it takes them from look for.
pub const TOKENIZER: [&str; 18] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "tokenizer.model.v3",
    "tekken.json",
    "qwen.tiktoken",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
];

/// Folders of chat templates, one in a file.
pub const TEMPLATES: [&str; 2] = ["additional_chat_templates", "chat_templates"];

/// How a model generates: end tokens, and how the next token is chosen.
pub const GENERATION: &str = "generation_config.json";

/// Copies the files of a tokenizer from a folder that may have them.
///
/// # Errors
/// When one cannot be read or written.
pub fn copy_tokenizer(from: &Path, to: &Path) -> io::Result<()> {
    TOKENIZER.iter().try_for_each(|name| copy(from, to, name))?;
    for name in TEMPLATES.iter().filter(|name| from.join(name).is_dir()) {
        fs::create_dir_all(to.join(name))?;
        for file in files_of(&from.join(name))? {
            let own = file.file_name().expect("of a folder").to_string_lossy();
            copy(&from.join(name), &to.join(name), &own)?;
        }
    }
    Ok(())
}

/// Copies a file where it is there.
///
/// # Errors
/// When it cannot be read or written.
pub fn copy(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    let file = from.join(name);
    if file.is_file() { fs::copy(file, to.join(name)).map(|_| ()) } else { Ok(()) }
}

fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}
