//! [`Canvas`]: a drawing area with the report's font, colours and markers. Lengths are pixels.

use std::cell::RefCell;
use std::sync::{LazyLock, Once};

use ab_glyph::{Font, FontRef};
use miette::miette;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::look::{dash, method_color};

/// Where a text's point lies in it.
pub use plotters::style::text_anchor::HPos as Anchor;

/// The family of every label; the same files render the PNG and the PDF.
pub const FONT: &str = "DejaVu Sans";
/// Browsers without the font use one of nearly the same widths.
const FAMILIES: &str = "DejaVu Sans, Verdana, sans-serif";
/// Plotters divides a font's size by this when it writes SVG.
const SVG_FONT_SCALE: f64 = 1.24;

pub const WIDTH: i32 = 900;
pub const TEXT: i32 = 12;
pub const SMALL: i32 = 11;
const TITLE: i32 = 16;
/// Where a title begins, and from one of its lines to the next.
const LEFT: i32 = 20;
const LINE: i32 = 22;

pub const INK: RGBColor = RGBColor(30, 30, 30);
pub const MUTED: RGBColor = RGBColor(95, 95, 95);
pub const GRID: RGBColor = RGBColor(222, 222, 222);
pub const ALARM: RGBColor = RGBColor(170, 20, 40);

/// The regular and the bold face. Not inlined: each unit of code that inlines it holds the faces once more.
#[inline(never)]
pub fn font_files() -> [&'static [u8]; 2] {
    [dejavu::sans::regular(), dejavu::sans::bold()]
}

fn register_fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let [regular, bold] = font_files();
        for (style, file) in [(FontStyle::Normal, regular), (FontStyle::Bold, bold)] {
            assert!(register_font(FONT, style, file).is_ok(), "the embedded font is a font");
        }
    });
}

/// Width of a text in the regular face.
pub fn text_width(text: &str, size: i32) -> i32 {
    width_in(0, text, size)
}

/// Width of a text in one of the faces, as every renderer of the SVG sets it: the advances of its glyphs. Plotters' own estimate
/// takes the font's height for its em and is a sixth too small.
fn width_in(face: usize, text: &str, size: i32) -> i32 {
    static FACES: LazyLock<[FontRef<'static>; 2]> = LazyLock::new(|| {
        font_files().map(|file| FontRef::try_from_slice(file).expect("the embedded font is a font"))
    });
    let font = &FACES[face];
    let units: f32 = text.chars().map(|c| font.h_advance_unscaled(font.glyph_id(c))).sum();
    let em = font.units_per_em().expect("the embedded font has an em");
    (units / em * size as f32).ceil() as i32
}

/// The lines of a title, broken between words.
fn title_lines(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split_whitespace() {
        let line = lines.last_mut().expect("a title has a line");
        let longer = if line.is_empty() { word.into() } else { format!("{line} {word}") };
        match width_in(1, &longer, TITLE) <= WIDTH - 2 * LEFT || line.is_empty() {
            true => *line = longer,
            false => lines.push(word.into()),
        }
    }
    lines
}

/// Shortens a text with an ellipsis until it is at most `width` wide.
pub fn fit(text: &str, size: i32, width: i32) -> String {
    if text_width(text, size) <= width {
        return text.to_string();
    }
    let shorter = (0..text.chars().count()).rev();
    let mut shorter = shorter.map(|letters| text.chars().take(letters).chain(['…']).collect::<String>());
    shorter.find(|short| text_width(short, size) <= width).unwrap_or_default()
}

pub type Result<T = ()> = miette::Result<T>;
type Point = (i32, i32);

pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    /// The areas of [`Canvas::hover`], as SVG.
    hovers: RefCell<String>,
    /// Pixels of the picture above the area.
    above: i32,
}

/// Draws on a white canvas below its title; returns the SVG. The height has room for a title of one line: below one of several
/// the drawing begins so much lower.
pub fn svg(title: &str, height: i32, draw: impl FnOnce(&Canvas) -> Result) -> Result<String> {
    register_fonts();
    let mut out = String::new();
    let lines = title_lines(title);
    let above = (lines.len() as i32 - 1) * LINE;
    let whole = SVGBackend::with_string(&mut out, (WIDTH as u32, (height + above) as u32));
    let mut canvas = Canvas { area: whole.into_drawing_area(), hovers: RefCell::default(), above };
    canvas.area.fill(&WHITE).map_err(failed)?;
    for (line, y) in lines.iter().zip((26..).step_by(LINE as usize)).filter(|(line, _)| !line.is_empty()) {
        canvas.text(line, (LEFT, y), TITLE, INK, Anchor::Left)?;
    }
    canvas.area = canvas.area.margin(above, 0, 0, 0);
    draw(&canvas)?;
    canvas.area.present().map_err(failed)?;
    let hovers = canvas.hovers.take();
    drop(canvas);
    let out = out.replace("</svg>", &format!("{hovers}</svg>"));
    Ok(out.replace(&format!("font-family=\"{FONT}\""), &format!("font-family=\"{FAMILIES}\"")))
}

fn failed(error: impl std::fmt::Display) -> miette::Report {
    miette!("cannot draw a chart: {error}")
}

impl Canvas<'_> {
    /// One line of text, centred vertically on its point; a title is bold.
    pub fn text(&self, text: &str, at: Point, size: i32, color: RGBColor, anchor: Anchor) -> Result {
        let style = if size == TITLE { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::Name(FONT), f64::from(size) * SVG_FONT_SCALE, style);
        let style = font.color(&color).pos(Pos::new(anchor, VPos::Center));
        self.area.draw(&Text::new(text, at, style)).map_err(failed)
    }

    /// Gives an area a text that a browser shows under its pointer.
    pub fn hover(&self, from: Point, to: Point, text: &str) {
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let (width, height) = ((to.0 - from.0).max(1), (to.1 - from.1).max(1));
        self.hovers.borrow_mut().push_str(&format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" fill-opacity=\"0\"><title>{escaped}</title></rect>\n",
            from.0,
            from.1 + self.above
        ));
    }

    /// The same for a point.
    pub fn hover_at(&self, (x, y): Point, text: &str) {
        self.hover((x - 7, y - 7), (x + 7, y + 7), text);
    }

    pub fn rect(&self, from: Point, to: Point, color: RGBColor) -> Result {
        self.area.draw(&Rectangle::new([from, to], color.filled())).map_err(failed)
    }

    pub fn line(&self, points: &[Point], color: RGBColor, width: u32) -> Result {
        self.area.draw(&PathElement::new(points.to_vec(), color.stroke_width(width))).map_err(failed)
    }

    /// A line of a method.
    pub fn curve(&self, method: usize, points: &[Point], width: u32) -> Result {
        let style = method_color(method).stroke_width(width);
        match dash(method) {
            Some([length, gap]) if points.len() > 1 => {
                let points = points.iter().copied();
                self.area.draw(&DashedPathElement::new(points, length, gap, style)).map_err(failed)
            }
            _ => self.line(points, method_color(method), width),
        }
    }

    /// The marker of a method, with a form and a colour of its own.
    pub fn marker(&self, method: usize, (x, y): Point, radius: i32) -> Result {
        let r = radius;
        let form: Vec<Point> = match method % 5 {
            0 => {
                self.area.draw(&Circle::new((x, y), r + 1, method_color(method).filled())).map_err(failed)?;
                return self.area.draw(&Circle::new((x, y), r + 1, WHITE.stroke_width(1))).map_err(failed);
            }
            1 => vec![(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)],
            2 => vec![(x, y - r - 1), (x + r + 1, y + r), (x - r - 1, y + r)],
            3 => vec![(x, y - r - 2), (x + r + 2, y), (x, y + r + 2), (x - r - 2, y)],
            _ => vec![(x, y + r + 1), (x + r + 1, y - r), (x - r - 1, y - r)],
        };
        let color = method_color(method);
        self.area.draw(&Polygon::new(form.clone(), color.filled())).map_err(failed)?;
        let outline: Vec<Point> = form.iter().chain(form.first()).copied().collect();
        self.line(&outline, WHITE, 1)
    }

    /// Stands where a value is missing.
    pub fn cross(&self, (x, y): Point, radius: i32, color: RGBColor) -> Result {
        self.line(&[(x - radius, y - radius), (x + radius, y + radius)], color, 2)?;
        self.line(&[(x - radius, y + radius), (x + radius, y - radius)], color, 2)
    }
}
