//! `selvedge stack pin`: a module of a running connection placed on elements by hand.

use std::io::Write;

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_comm_stack::endpoint::ModulePin;
use selvedge_node::control_server::StackRequest;

use super::draw::modules;
use super::tune::changed;

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// The process
    pid: u32,
    /// The number of the connection, as `stack show` prints it
    #[arg(value_parser = |text: &str| u32::from_str_radix(text, 16))]
    connection: u32,
    /// The module and the elements that serve it, such as net=1 or net=0,1; net=any lets the manager decide
    /// about the whole connection again
    #[arg(value_name = "MODULE=PE", value_parser = place)]
    place: (String, Vec<u8>),
}

/// The text names no module with its elements.
#[derive(Debug, thiserror::Error)]
#[error("write a module and its elements, such as net=1, net=0,1 or net=any")]
struct PlaceError;

fn place(text: &str) -> Result<(String, Vec<u8>), PlaceError> {
    let (module, elements) = text.rsplit_once('=').ok_or(PlaceError)?;
    let elements = match elements {
        "any" => Ok(Vec::new()),
        list => list.split(',').map(str::parse).collect::<Result<_, _>>(),
    };
    Ok((module.trim().to_owned(), elements.map_err(|_| PlaceError)?))
}

pub(super) fn pin(args: &PinArgs) -> Result<(), Failure> {
    let (module, elements) = args.place.clone();
    let pin = StackRequest::Pin(ModulePin { connection: args.connection, module, elements });
    let process = changed(args.pid, &pin)?;
    let mut out = std::io::stdout().lock();
    let connections = process.endpoints.iter().flat_map(|endpoint| &endpoint.connections);
    for connection in connections.filter(|connection| connection.id == args.connection) {
        write!(out, "{}", modules(connection))?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_place_is_a_module_with_its_elements() {
        let place = |text: &str| super::place(text).map_err(|error| error.to_string());
        assert_eq!(place("frag(1400)=0,1"), Ok(("frag(1400)".to_owned(), vec![0, 1])));
        assert_eq!(place("net=any"), Ok(("net".to_owned(), Vec::new())));
        for wrong in ["net", "net=", "net=PE.1", "net=300"] {
            assert!(place(wrong).unwrap_err().contains("net=0,1"), "{wrong}");
        }
    }
}
