//! Trees of weights in node files: any order, long chains, cycles.

use selvedge_data_sched::TreeNode;

use super::*;

/// Nodes in any order are returned parents first, and streams find theirs.
#[test]
fn a_tree_is_read_in_any_order() {
    let text = r#"
        [link.a]
        rate = "1 Mbit/s"
        discipline = "hwfq"
        remap = "10 ms"
        tree.leaf = { parent = "middle", weight = 3 }
        tree.middle = { parent = "top", weight = 1000 }
        tree.other = {}
        tree.top.weight = 2
        [link.b]
        rate = "1 Mbit/s"
        [stream.s]
        source = "test:video"
        to = "rtp://[::1]:9"
        link = "a"
        parent = "leaf"
        weight = 5
        [stream.t]
        source = "test:video"
        to = "rtp://[::1]:10"
        link = "a"
        parent = "top"
        [stream.u]
        source = "test:video"
        to = "rtp://[::1]:11"
        link = "a"
        [stream.v]
        source = "test:video"
        to = "rtp://[::1]:12"
        link = "b"
    "#;
    let config = parsed(text).config;
    let link = &config.links[0];
    assert_eq!(link.nodes, ["top", "middle", "leaf", "other"]);
    let node = |parent, weight| TreeNode { parent, weight };
    assert_eq!(link.tree.nodes(), [node(0, 2), node(1, 1000), node(2, 3), node(0, 1)]);
    assert_eq!(link.tree.update(), Some(Duration::from_millis(10)));
    assert_eq!((&config.links[1].tree, config.links[1].nodes.len()), (&Tree::default(), 0));
    let parents: Vec<u32> =
        config.streams.iter().map(|stream| stream.spec.contract.parent).collect();
    assert_eq!(parents, [3, 1, 0, 0]);

    let summary = config.summary();
    let owned: Vec<(&str, Option<&str>, f64)> = summary.links[0]
        .tree
        .iter()
        .map(|owner| (&*owner.name, owner.parent.as_deref(), (owner.owns * 3003.0).round()))
        .collect();
    // Two thirds to `top`, 1000 of 1001 parts of them down to the leaf.
    let expected = [
        ("top", None, 2002.0),
        ("middle", Some("top"), 2000.0),
        ("leaf", Some("middle"), 2000.0),
        ("other", None, 0.0),
        ("s", Some("leaf"), 2000.0),
        ("t", Some("top"), 2.0),
        ("u", None, 1001.0),
    ];
    assert_eq!(owned, expected);
    assert!(summary.links[1].tree.is_empty());
}

/// Long chains, all nodes in one cycle, cycles with tails: an answer, soon.
#[test]
fn large_trees_are_read_or_refused() {
    let file = |nodes: usize, parent: &dyn Fn(usize) -> Option<usize>| {
        let mut text = SMALLEST.replace("Mbit/s\"", "Mbit/s\"\ndiscipline = \"hwfq\"");
        for n in 0..nodes {
            text.push_str(&format!("[link.uplink.tree.n{n}]\n"));
            if let Some(parent) = parent(n) {
                text.push_str(&format!("parent = \"n{parent}\"\n"));
            }
        }
        text
    };
    let chain = |n: usize| (n + 1 < NODES_MAX).then_some(n + 1);
    let config = parsed(&file(NODES_MAX, &chain)).config;
    assert_eq!(config.links[0].nodes[0], format!("n{}", NODES_MAX - 1));
    assert_eq!(config.links[0].tree.nodes()[NODES_MAX - 1].parent as usize, NODES_MAX - 1);
    let more = wrong(&file(NODES_MAX + 1, &|_| None)).to_string();
    assert!(more.contains("4097 nodes; a link's tree takes at most 4096"), "{more}");
    // The kernel has room for 255; a coprocessor for all.
    let placed = |nodes: usize, placement: &str| {
        let also = format!("\"hwfq\"\nplacement = \"{placement}\"");
        file(nodes, &|_| None).replace("\"hwfq\"", &also)
    };
    assert_eq!(parsed(&placed(255, "kernel")).config.links[0].tree.nodes().len(), 255);
    let more = wrong(&placed(256, "kernel")).to_string();
    assert!(more.contains("256 nodes; a link's tree takes at most 255"), "{more}");
    let config = parsed(&placed(NODES_MAX, "coprocessor")).config;
    assert_eq!(config.links[0].tree.nodes().len(), NODES_MAX);
    let circle = wrong(&file(NODES_MAX, &|n| Some((n + 1) % NODES_MAX)));
    assert_eq!((circle.errors().len(), circle.omitted()), (1, 0), "{circle}");
    assert!(circle.to_string().contains("tree.n0.parent: the node hangs below itself, by way of"));
    let pairs = wrong(&file(NODES_MAX, &|n| Some(n ^ 1)));
    assert_eq!(pairs.errors().len() + pairs.omitted(), NODES_MAX / 2);
    let tails = wrong(&file(NODES_MAX, &|n| Some(n.saturating_sub(1))));
    assert_eq!(tails.errors().len(), 1, "{tails}");
}
