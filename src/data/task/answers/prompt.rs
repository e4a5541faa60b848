//! [`Prompt`]: the text of a question, from the columns of its row.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::choices::letter;
use super::rows::Row;

/// Of the template; without an ending, so that nothing is escaped for HTML.
const NAME: &str = "prompt";
/// Choices with their letters, each on a line.
const LETTERED: &str = "{% for choice in choices %}\n{{ letters[loop.index0] }}. {{ choice }}{% endfor %}";

/// A Jinja template of a question's text.
pub struct Prompt {
    environment: Environment<'static>,
    text: String,
}

impl Prompt {
    /// # Errors
    /// Text that is no template; says where.
    pub fn new(text: String) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
        environment.set_syntax(syntax.map_err(|e| e.to_string())?);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_template_owned(NAME, text.clone()).map_err(|e| format!("task.prompt: {e}"))?;
        Ok(Self { environment, text })
    }

    /// The template where the recipe has none: the question alone in a chat, else as GSM8K's.
    pub fn usual(is_chat: bool, has_letters: bool) -> String {
        let list = if has_letters { LETTERED } else { "" };
        match is_chat {
            true => format!("{{{{ question }}}}{list}"),
            false => format!("Question: {{{{ question }}}}{list}\nAnswer:"),
        }
    }

    /// What the text of every question begins with.
    pub fn beginning(&self) -> &str {
        self.text.split(['{', '\n']).next().unwrap_or_default().trim_end()
    }

    /// The columns that it names, besides `question` and `choices`.
    pub fn columns(&self) -> Vec<String> {
        let template = self.environment.get_template(NAME).expect("it was added");
        let own = |name: &String| ["question", "choices", "letters"].contains(&name.as_str());
        let is_global = |name: &String| self.environment.globals().any(|(global, _)| global == name);
        template
            .undeclared_variables(false)
            .into_iter()
            .filter(|name| !own(name) && !is_global(name))
            .collect()
    }

    /// # Errors
    /// A column that the row lacks, and a template that cannot be filled in.
    pub fn text(&self, row: &Row, question: &str, choices: &[String]) -> Result<String, String> {
        let letters = (0..choices.len()).map(letter);
        let own = [
            ("question".to_string(), question.into()),
            ("choices".into(), Value::from_iter(choices.iter().cloned())),
            ("letters".into(), Value::from_iter(letters)),
        ];
        let column = |name: String| row.column("prompt", &name).map(|value| (name, value));
        let columns: Vec<_> = self.columns().into_iter().map(column).collect::<Result<_, _>>()?;
        let template = self.environment.get_template(NAME).expect("it was added");
        let values = Value::from_pairs(own.into_iter().chain(columns));
        template.render(values).map_err(|e| row.says(&format!("task.prompt cannot be filled in: {e}")))
    }
}
