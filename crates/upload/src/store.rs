//! Where files go: an S3-compatible object store, or a folder.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use object_store::aws::AmazonS3Builder;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt as _, RetryConfig};
use thermo_kernel::durable_file;
use tokio::runtime::{Builder, Runtime};

/// A request that takes longer has failed.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// Tries of one request. After them, the uploader waits.
const RETRIES: usize = 2;

/// Name of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Objects whose names begin with `prefix`.
    S3 {
        /// The bucket.
        bucket: String,
        /// Without slashes around it; may be empty.
        prefix: String,
    },
    /// A folder.
    Folder(PathBuf),
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            ensure!(
                !bucket.is_empty(),
                "the bucket is missing: write s3://BUCKET/PREFIX"
            );
            return Ok(Self::S3 {
                bucket: bucket.to_owned(),
                prefix: prefix.trim_matches('/').to_owned(),
            });
        }
        if let Some((scheme, _)) = text.split_once("://") {
            bail!("{scheme}:// is not known: write s3://BUCKET/PREFIX, or the path of a folder");
        }
        ensure!(
            !text.is_empty(),
            "the store is empty: write s3://BUCKET/PREFIX, or the path of a folder"
        );
        Ok(Self::Folder(PathBuf::from(text)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(out, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(out, "s3://{bucket}/{prefix}"),
            Self::Folder(path) => path.display().fmt(out),
        }
    }
}

/// An open store.
pub struct Store {
    address: Address,
    place: Place,
}

enum Place {
    Folder(PathBuf),
    Objects(Box<dyn ObjectStore>, Runtime),
}

impl Store {
    /// Opens a store. Nothing is sent yet.
    ///
    /// # Errors
    /// The folder does not exist, or the settings contradict each other.
    pub fn open(address: &Address, endpoint: Option<&str>, allow_http: bool) -> anyhow::Result<Self> {
        let place = match address {
            Address::Folder(path) => {
                ensure!(endpoint.is_none(), "--endpoint is for s3:// only: remove it");
                Place::Folder(folder(path)?)
            }
            Address::S3 { bucket, prefix } => {
                let objects = s3(bucket, prefix, endpoint, allow_http)?;
                let runtime = Builder::new_current_thread().enable_all().build();
                Place::Objects(objects, runtime.context("cannot start the network's event loop")?)
            }
        };
        Ok(Self {
            address: address.clone(),
            place,
        })
    }

    /// The name of the store.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Stores `bytes` under `name`, whole or not at all. A file of this name is replaced.
    ///
    /// # Errors
    /// A sentence with the way out.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        match &self.place {
            // On the disk before this returns: then the file is removed from the spool.
            Place::Folder(root) => durable_file::replace_beneath(root, Path::new(name), &bytes)
                .map_err(|error| format!("{} cannot be written: {error}", self.address)),
            Place::Objects(objects, runtime) => {
                let path = object_store::path::Path::parse(name)
                    .map_err(|error| format!("{name} cannot be the name of an object: {error}"))?;
                let put = runtime.block_on(objects.put(&path, bytes.into()));
                put.map(drop).map_err(|error| self.sentence(&error))
            }
        }
    }

    fn sentence(&self, error: &Error) -> String {
        let store = &self.address;
        match error {
            Error::NotFound { .. } => format!("{store} does not exist: create the bucket, or correct --to"),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                format!("{store} refuses to store files: check the keys and the rights of their owner")
            }
            other => format!("{store} cannot be written: {}", innermost(other)),
        }
    }
}

/// The cause at the end of the chain: what the system or the store said.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn folder(path: &Path) -> anyhow::Result<PathBuf> {
    let metadata = fs::metadata(path).with_context(|| {
        format!(
            "cannot read {}: create the folder, or correct --to",
            path.display()
        )
    })?;
    ensure!(
        metadata.is_dir(),
        "{} is not a folder: correct --to",
        path.display()
    );
    Ok(path.to_owned())
}

fn s3(
    bucket: &str,
    prefix: &str,
    endpoint: Option<&str>,
    allow_http: bool,
) -> anyhow::Result<Box<dyn ObjectStore>> {
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    ensure!(
        !is_plain || allow_http,
        "the endpoint has no TLS, so others could read keys and data: use https, or add --allow-http"
    );
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(
            ClientOptions::new()
                .with_timeout(REQUEST_TIME)
                .with_allow_http(allow_http),
        )
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: REQUEST_TIME,
        });
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let objects = builder
        .build()
        .with_context(|| format!("cannot use s3://{bucket}: correct --to or --endpoint"))?;
    Ok(match prefix {
        "" => Box::new(objects),
        prefix => Box::new(PrefixStore::new(objects, prefix)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, printed) in [
            ("s3://memory", "s3://memory"),
            ("s3://memory/", "s3://memory"),
            ("s3://memory/fleet/a/", "s3://memory/fleet/a"),
            ("/mnt/fleet", "/mnt/fleet"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), printed);
        }
        for (text, why) in [
            ("s3:///x", "the bucket is missing"),
            ("gs://x/y", "gs:// is not known"),
            ("", "the store is empty"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn keys_are_not_sent_in_the_clear_by_mistake() {
        let address: Address = "s3://memory/fleet".parse().unwrap();
        let error = Store::open(&address, Some("http://127.0.0.1:9"), false)
            .err()
            .unwrap();
        assert!(error.to_string().contains("add --allow-http"), "{error}");
        let folder: Address = "/tmp".parse().unwrap();
        let error = Store::open(&folder, Some("https://x"), false).err().unwrap();
        assert_eq!(error.to_string(), "--endpoint is for s3:// only: remove it");
    }

    #[test]
    fn folder_must_exist() {
        let error = Store::open(&Address::Folder("/nonexistent".into()), None, false)
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            "cannot read /nonexistent: create the folder, or correct --to"
        );
    }

    #[test]
    fn file_is_stored_whole_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Address::Folder(folder.path().to_owned()), None, false).unwrap();
        let name = "date=2026-11-02/cluster=a/n.1.v1.parquet";
        for text in ["first", "second"] {
            store.put(name, text.into()).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), text);
        }
    }
}
