//! The page's files, built into the program, with the headers that isolate the page from other sites.

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

/// No content from other sites, no inline script or style, no frame around the page.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

struct Asset {
    path: &'static str,
    kind: &'static str,
    body: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! assets {
    ($($kind:ident $path:literal)*) => {
        &[$(Asset {
            path: $path,
            kind: $kind,
            body: include_bytes!(concat!("../static/", $path)),
        }),*]
    };
}

const ASSETS: &[Asset] = assets! {
    HTML "index.html"
    HTML "watch.html"
    CSS "style.css"
    SVG "favicon.svg"
    JS "main.js"
    JS "watch.js"
    JS "make.js"
    JS "connection.js"
    JS "sound.js"
    JS "wire.js"
    JS "table.js"
    JS "row.js"
    JS "links.js"
    JS "plots.js"
    JS "history.js"
    JS "thumbs.js"
    JS "player.js"
    JS "videos.js"
    JS "comparison.js"
    JS "past.js"
    JS "cause.js"
    JS "controls.js"
    JS "reasons.js"
    JS "channels.js"
    JS "panel.js"
    JS "stacks.js"
    JS "format.js"
    JS "vendor/uplot-1.6.32/uPlot.esm.js"
    CSS "vendor/uplot-1.6.32/uPlot.min.css"
    TEXT "vendor/uplot-1.6.32/LICENSE"
};

/// Requests the token; a form, so that it works without a script.
const TOKEN_PAGE: &str = include_str!("../static/token.html");

/// The file at this path, if there is one; `None`: not a file of the page.
pub(crate) fn serve(uri: &Uri, headers: &HeaderMap) -> Option<Response> {
    let path = match uri.path() {
        "/" => "index.html",
        "/watch" => "watch.html",
        path => path.strip_prefix('/')?,
    };
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let tag = format!("\"{:016x}\"", fingerprint(asset.body));
    // A vendored file's path holds its version; the others change with the program.
    let cache = if path.starts_with("vendor/") {
        "private, max-age=31536000, immutable"
    } else {
        "private, no-cache"
    };
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let known = known.is_some_and(|list| list.split(',').any(|each| each.trim() == tag));
    let about = [(header::CACHE_CONTROL, cache.to_owned()), (header::ETAG, tag)];
    Some(if known {
        (StatusCode::NOT_MODIFIED, about).into_response()
    } else {
        (about, [(header::CONTENT_TYPE, asset.kind)], asset.body).into_response()
    })
}

/// The page that requests the token, for a browser that sent none.
pub(crate) fn token_page() -> Response {
    let headers = [(header::CONTENT_TYPE, HTML), (header::CACHE_CONTROL, "no-store")];
    (StatusCode::UNAUTHORIZED, headers, TOKEN_PAGE).into_response()
}

/// Headers for every response.
pub(crate) fn guard(headers: &mut HeaderMap) {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The page's address may hold the token.
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

/// FNV-1a: only distinguishes versions of a file.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::may_watch;

    #[test]
    fn the_page_of_those_who_watch_loads_what_they_may_read() {
        let text = |path: &str| {
            let asset = ASSETS.iter().find(|asset| asset.path == path).expect(path);
            std::str::from_utf8(asset.body).unwrap()
        };
        let (mut files, mut read) = (vec!["watch.html"], 0);
        while let Some(file) = files.get(read) {
            read += 1;
            for line in text(file).lines() {
                let marks = ["src=\"/", "href=\"/", "from \"./"];
                let Some((_, rest)) = marks.iter().find_map(|mark| line.split_once(mark)) else {
                    continue;
                };
                let wanted = rest.split('"').next().unwrap();
                assert!(may_watch(&format!("/{wanted}")), "they may not read {wanted}");
                if !files.contains(&wanted) {
                    files.push(wanted);
                }
            }
        }
        assert!(files.contains(&"sound.js") && files.contains(&"style.css"), "{files:?}");
    }

    #[test]
    fn the_page_loads_only_what_is_built_in() {
        let served = |path: &str| ASSETS.iter().any(|asset| asset.path == path);
        for asset in ASSETS.iter().filter(|asset| !asset.path.starts_with("vendor/")) {
            let text = std::str::from_utf8(asset.body).unwrap();
            assert!(!text.contains("https://"), "{} names another site", asset.path);
            for quoted in text.split('"').skip(1).step_by(2) {
                let file = quoted.strip_prefix("./").or_else(|| quoted.strip_prefix('/'));
                let file = file.unwrap_or(quoted);
                let is_file = [".js", ".css", ".svg"].iter().any(|end| file.ends_with(end));
                assert!(!is_file || served(file), "{} wants {file}", asset.path);
            }
        }
    }
}
