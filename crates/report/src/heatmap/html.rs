//! A heatmap as one self-contained HTML page with zoom and tooltips.

use thermo_units::template;

use super::Heatmap;
use crate::picture::palette;

impl Heatmap {
    /// The page. It loads no other resources.
    #[must_use]
    pub fn html(&self) -> String {
        // "<" could end the script element that holds the data. In JSON strings, the escape means the same
        // character.
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
        // A sentence of ours: as a Rust string it is the same in JavaScript.
        let empty = format!("{:?}", self.basis.no_data());
        let values = [colours, data, empty];
        let names = ["{{colours}}", "{{data}}", "{{empty}}"];
        template::fill(include_str!("page.html"), &names, |nth| {
            values.get(nth).cloned().unwrap_or_default()
        })
    }
}
