//! Writes create and remove nodes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use super::*;
use crate::table::Layout;

fn write(tree: &mut Tree, path: &str, text: &str) -> Result<(), Errno> {
    let ino = tree.find(path)?;
    tree.store(ino, text.as_bytes())
}

#[test]
fn count_write_replaces_numbered_directories() {
    let mut tree = Tree::new(Layout::Sysfs.root());
    let nr = "admin/kdamonds/nr_kdamonds";
    assert_eq!(tree.find("admin/kdamonds/0"), Err(Errno::NOENT));
    write(&mut tree, nr, "2\n").unwrap();
    let refresh = tree.find("admin/kdamonds/1/refresh_ms").unwrap();
    tree.store(refresh, b"7").unwrap();
    assert_eq!(tree.show(refresh), Ok("7".to_owned()));
    write(&mut tree, nr, "2").unwrap();
    assert_eq!(tree.show(refresh), Err(Errno::NODEV), "the old node is gone");
    let refresh = tree.find("admin/kdamonds/1/refresh_ms").unwrap();
    assert_eq!(tree.show(refresh), Ok("0".to_owned()));
    for (wrong, errno) in [
        ("-1", Errno::INVAL),
        ("x", Errno::INVAL),
        ("2147483648", Errno::RANGE),
        ("2147483647", Errno::NOMEM),
    ] {
        assert_eq!(write(&mut tree, nr, wrong), Err(errno), "{wrong}");
    }
    assert!(
        tree.find("admin/kdamonds/1").is_ok(),
        "a rejected write changes nothing"
    );
    let nodes = tree.nodes.len();
    write(&mut tree, nr, "0").unwrap();
    write(&mut tree, nr, "2").unwrap();
    assert_eq!(tree.nodes.len(), nodes, "replaced nodes are freed");
}

#[test]
fn generated_directories_are_replaced() {
    let mut tree = Tree::new(Layout::Sysfs.root());
    write(&mut tree, "admin/kdamonds/nr_kdamonds", "1").unwrap();
    write(&mut tree, "admin/kdamonds/0/contexts/nr_contexts", "1").unwrap();
    write(&mut tree, "admin/kdamonds/0/contexts/0/schemes/nr_schemes", "1").unwrap();
    let tried = tree
        .find("admin/kdamonds/0/contexts/0/schemes/0/tried_regions")
        .unwrap();
    let regions = tree.replace_generated(tried, 3);
    tree.set_file(regions[2], "age", Value::Unsigned(9));
    assert_eq!(tree.list(tried).unwrap().count(), 4);
    let age = tree
        .find("admin/kdamonds/0/contexts/0/schemes/0/tried_regions/2/age")
        .unwrap();
    assert_eq!(tree.show(age), Ok("9".to_owned()));
    assert_eq!(tree.store(age, b"1"), Err(Errno::ACCESS));
    tree.replace_generated(tried, 0);
    assert_eq!(tree.list(tried).unwrap().count(), 1);
}
