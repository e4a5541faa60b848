//! [`Jinja`]: a chat template, rendered as transformers renders it with jinja2.

mod filters;
mod json;
mod marks;
mod methods;
mod python;
mod source;
mod time;

use std::collections::HashSet;
use std::ops::Range;

use ::time::UtcDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};

use marks::{MARKS, Rendered};

const NAME: &str = "chat";

/// A template that is compiled.
#[derive(Debug)]
pub struct Jinja {
    plain: Environment<'static>,
    /// The same with [`MARKS`] around what the model generates, where the template says what that is.
    marked: Option<Environment<'static>>,
}

impl Jinja {
    /// Compiles a template. `now` is what `strftime_now` formats.
    ///
    /// # Errors
    /// A syntax error, with its line.
    pub fn new(source: &str, now: UtcDateTime) -> Result<Self, String> {
        let (source, is_marked) = source::prepared(source)?;
        let compiled = |marks: [&str; 2]| -> Result<Environment<'static>, Error> {
            let mut environment = environment(now)?;
            for (name, mark) in source::MARKS.into_iter().zip(marks) {
                environment.add_template_owned(name, mark.to_string())?;
            }
            environment.add_template_owned(NAME, source.clone())?;
            Ok(environment)
        };
        let marks = MARKS.map(String::from);
        let marked = is_marked.then(|| compiled(marks.each_ref().map(String::as_str)));
        Ok(Self { plain: compiled(["", ""]).map_err(reason)?, marked: marked.transpose().map_err(reason)? })
    }

    /// The text of a template with these variables.
    ///
    /// # Errors
    /// What the template raises.
    pub fn render(&self, variables: Value) -> Result<String, String> {
        rendered(&self.plain, variables)
    }

    /// The variables that the template reads.
    pub fn reads(&self) -> HashSet<String> {
        let template = self.plain.get_template(NAME);
        let mut names = template.map(|template| template.undeclared_variables(false)).unwrap_or_default();
        self.plain.globals().for_each(|(name, _)| _ = names.remove(name));
        names
    }

    /// Whether the template says what the model generates.
    pub fn is_marked(&self) -> bool {
        self.marked.is_some()
    }

    /// Where the model generates a text that [`render`](Self::render) returned for these variables.
    ///
    /// # Errors
    /// When marks change the text.
    pub fn generated(&self, text: &str, variables: Value) -> Result<Vec<Range<usize>>, String> {
        let Some(marked) = &self.marked else { return Ok(Vec::new()) };
        let marked = Rendered::new(&rendered(marked, variables)?)?;
        if marked.text == text {
            Ok(marked.generated)
        } else {
            Err("the template's text depends on its own marks of what is generated".into())
        }
    }
}

fn rendered(environment: &Environment, variables: Value) -> Result<String, String> {
    environment.get_template(NAME).and_then(|template| template.render(variables)).map_err(reason)
}

/// What transformers gives a template.
fn environment(now: UtcDateTime) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_debug(false);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _, value| Ok(out.write_str(&python::text(value))?));
    filters::add(&mut environment);
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, python::text(message)))
    });
    environment.add_function("strftime_now", move |format: &str| time::formatted(now, format));
    Ok(environment)
}

/// What an error says, with the line of the template.
fn reason(error: Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    let line = error.line().map(|line| format!(" (line {line} of the template)"));
    what + &line.unwrap_or_default()
}
