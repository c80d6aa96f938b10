//! `[kubernetes]`: the kubelet that names the pods of this node.

use hyper::Uri;
use thermo_units::text::ParseError;
use toml::Spanned;

use super::file;
use super::parse::Source;
use crate::kubernetes::kubelet::KubeletConfig;

/// The kubelet, unless the configuration names another.
const KUBELET: &str = "https://${NODE_IP}:10250";
/// The port of a kubelet, if the URL has none.
const PORT: u16 = 10250;
/// Where a pod has its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The kubelet of the table; `None`: it is switched off.
pub(super) fn parse(
    source: &Source<'_>,
    table: Spanned<file::Kubernetes>,
) -> Result<Option<KubeletConfig>, ParseError> {
    let span = table.span();
    let file = table.into_inner();
    if file.enabled == Some(false) {
        return Ok(None);
    }
    let kubelet = file
        .kubelet
        .unwrap_or_else(|| Spanned::new(span, KUBELET.to_owned()));
    let variable = |name: &str| std::env::var(name).ok();
    let fill =
        |text: &Spanned<String>| fill_in(text.get_ref(), variable).map_err(|error| source.error(text, error));
    let in_account = |name: &str| format!("{SERVICE_ACCOUNT}/{name}");
    let (is_encrypted, host, port) = url(&fill(&kubelet)?).map_err(|error| source.error(&kubelet, error))?;
    let node = file.node.as_ref().map(fill).transpose()?;
    if let Some(at) = file
        .node
        .as_ref()
        .filter(|_| node.as_deref().is_some_and(|node| !is_name(node)))
    {
        return Err(source.error(
            at,
            "give the name of the node as Kubernetes has it, like worker-1",
        ));
    }
    Ok(Some(KubeletConfig {
        is_encrypted,
        host,
        port,
        token_file: file.token_file.unwrap_or_else(|| in_account("token")).into(),
        ca_file: file.ca_file.unwrap_or_else(|| in_account("ca.crt")).into(),
        node,
    }))
}

/// The name of a node: a subdomain of DNS.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_plain)
}

/// Puts the values of variables in place of `${NAME}`: an address differs from node to node, the
/// configuration does not. IPv6 addresses get the brackets that a URL needs.
pub(super) fn fill_in(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after
            .split_once('}')
            .ok_or_else(|| format!("{text:?} has ${{ without }}: write ${{NODE_IP}}"))?;
        let value = variable(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            format!(
                "the variable {name} of the environment is not set: set it, in a pod by `env` and `fieldRef`, \
                 or write the value in place of ${{{name}}}"
            )
        })?;
        filled += before;
        match value.parse::<std::net::Ipv6Addr>() {
            Ok(address) => filled += &format!("[{address}]"),
            Err(_) => filled += &value,
        }
        rest = behind;
    }
    Ok(filled + rest)
}

/// Whether the URL is of TLS, its host without brackets, and its port.
fn url(text: &str) -> Result<(bool, String, u16), String> {
    let invalid = || format!("{text:?} is not the URL of a kubelet: give one like https://192.0.2.7:10250");
    let uri: Uri = text.parse().map_err(|_| invalid())?;
    let is_encrypted = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(invalid()),
    };
    let host = uri
        .host()
        .map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    let host = host.filter(|host| !host.is_empty()).ok_or_else(invalid)?;
    let has_user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    if has_user || uri.path() != "/" || uri.query().is_some() {
        return Err(invalid());
    }
    Ok((is_encrypted, host.to_owned(), uri.port_u16().unwrap_or(PORT)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Option<KubeletConfig>, String> {
        let config = Config::parse(text, Path::new("/"));
        config
            .map(|config| config.kubernetes)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn variables_are_filled_in() {
        let variable = |name: &str| match name {
            "IP" => Some("192.0.2.7".to_owned()),
            "IP6" => Some("2001:db8::7".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let fill = |text: &str| fill_in(text, variable);
        assert_eq!(fill("https://${IP}:10250").unwrap(), "https://192.0.2.7:10250");
        assert_eq!(
            fill("https://${IP6}:10250").unwrap(),
            "https://[2001:db8::7]:10250"
        );
        assert_eq!(fill("plain").unwrap(), "plain");
        for (text, why) in [
            ("${NONE}", "the variable NONE of the environment is not set"),
            ("${EMPTY}", "the variable EMPTY"),
            ("${IP", "has ${ without }"),
        ] {
            assert!(fill(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn urls_are_of_kubelets() {
        assert_eq!(
            url("https://a.example").unwrap(),
            (true, "a.example".to_owned(), 10250)
        );
        assert_eq!(
            url("http://[::1]:10255/").unwrap(),
            (false, "::1".to_owned(), 10255)
        );
        for text in [
            "a:1",
            "ftp://a",
            "https://",
            "https://a/pods",
            "https://u@a",
            "https://a?x=1",
            "",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn table_has_defaults_of_a_pod() {
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("[kubernetes]\nenabled = false\n").unwrap(), None);
        let config = parse("[kubernetes]\nkubelet = \"https://192.0.2.7\"\nnode = \"worker-1\"\n");
        let config = config.unwrap().unwrap();
        assert_eq!(config.url(), "https://192.0.2.7:10250");
        assert_eq!(
            config.token_file,
            Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token")
        );
        assert_eq!(config.node.as_deref(), Some("worker-1"));
    }

    #[test]
    fn mistakes_have_position_and_way_out() {
        let policy = |rest: &str| format!("[[policy]]\nname = \"a\"\n{rest}\n");
        for (text, expected) in [
            (
                "[kubernetes]\nkubelet = \"node:10250\"\n".to_owned(),
                "2:11: \"node:10250\" is not the URL",
            ),
            (
                "[kubernetes]\nkubelet = \"https://${NO_SUCH_IP}:1\"\n".to_owned(),
                "2:11: the variable NO_SUCH_IP of the environment is not set: set it",
            ),
            (
                "[kubernetes]\nkubelet = \"https://a\"\nnode = \"a b\"\n".to_owned(),
                "3:8: give the name of the node",
            ),
            (
                policy("match = { namespace = \"shop\" }"),
                "3:9: namespace is known in Kubernetes only: add [kubernetes]",
            ),
            (
                policy("match = { command = \"a\" }\ntarget_name = \"{workload}\""),
                "4:15: the names of pods are known in Kubernetes only: add [kubernetes]",
            ),
            (
                policy("match = { label = \"\" }"),
                "3:19: give a label as NAME=VALUE, or NAME for any value",
            ),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.starts_with(expected), "{text}\n{error}");
        }
    }
}
