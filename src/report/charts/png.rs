//! A chart's SVG as pixels.

use std::sync::{Arc, LazyLock};

use miette::{IntoDiagnostic, WrapErr, miette};
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{self, fontdb};

use super::canvas::{FONT, font_files};

/// Pixels for each of the SVG's: sharp on a dense screen and in print.
const SCALE: f32 = 2.0;

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    for file in font_files() {
        fonts.load_font_data(file.to_vec());
    }
    fonts.set_sans_serif_family(FONT);
    Arc::new(fonts)
});

/// The SVG as resvg understands it, its texts laid out.
pub fn tree(svg: &str) -> miette::Result<usvg::Tree> {
    let options = usvg::Options { fontdb: FONTS.clone(), ..usvg::Options::default() };
    usvg::Tree::from_str(svg, &options).into_diagnostic().wrap_err("cannot read a chart's SVG")
}

/// A PNG on white, twice the SVG's size.
pub fn png(svg: &str) -> miette::Result<Vec<u8>> {
    let tree = tree(svg)?;
    let (width, height) = ((tree.size().width() * SCALE) as u32, (tree.size().height() * SCALE) as u32);
    let mut pixels =
        Pixmap::new(width, height).ok_or_else(|| miette!("a chart of {width} x {height} pixels"))?;
    pixels.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().into_diagnostic().wrap_err("cannot write a chart as PNG")
}
