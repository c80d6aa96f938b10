//! A heatmap as one self-contained page: zoom, and what lies under the pointer.

use super::Heatmap;
use crate::picture::palette;

impl Heatmap {
    /// The page. It loads nothing from anywhere.
    #[must_use]
    pub fn html(&self) -> String {
        // A "<" could end the script the data stands in; within JSON strings the escape means the same.
        let data = serde_json::to_string(self)
            .unwrap_or_else(|_| "null".to_owned())
            .replace('<', "\\u003c");
        let ramp: Vec<String> = palette::RAMP.iter().map(|colour| format!("{colour:?}")).collect();
        let colours = format!(
            "{{\"ramp\":[{}],\"unknown\":{:?},\"absent\":{:?}}}",
            ramp.join(","),
            palette::UNKNOWN,
            palette::ABSENT
        );
        let page = include_str!("page.html").replace("{{colours}}", &colours);
        // Last, so that nothing in the data is taken for a place to fill.
        page.replace("{{data}}", &data)
    }
}
