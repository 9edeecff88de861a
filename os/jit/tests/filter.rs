//! A channel's filters give the same results as machine code and in the kernel as in the evaluator. An
//! event's whole path through a channel allocates no memory after the first time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use selvedge_control_code::native::Compiler;
use selvedge_control_code::{Handler, Interpreted};
use selvedge_control_event::{
    Attributes, Channel, Event, Filter, Format, Overflow, SharedBlocks, Subscription, Wake, program,
};
use selvedge_os_jit::{Hook, Kernel, Native, available};
use selvedge_units::{Duration, Instant};

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of this thread.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FORMAT: &str = "input { int cpu; long memory; };";

/// A channel filter with a loop, state and a choice.
const CHOOSE: &str = "{
    static long turn;
    int i;
    if (input.cpu < 10 || event.left == 0) return 0;
    turn++;
    for (i = 0; i < channel.sinks; i++)
        choice.sink[i] = (turn + i) % 2 == 0 || channel.sink[i].waiting == 0;
    return 1;
}";

/// An event filter.
const WANT: &str = "{ static int n; return input.memory > 1000 || ++n % 4 == 0; }";

type Make<'m> = &'m mut dyn FnMut(selvedge_control_code::Program) -> Box<dyn Handler + Send>;

fn channel(make: Make<'_>, blocks: &mut SharedBlocks) -> Channel {
    let format = Format::parse("load", FORMAT).unwrap();
    let mut channel = Channel::new("load", format.clone(), Wake::All);
    let mut filter = |source: &str| {
        let program = program("filter", source, &format).unwrap_or_else(|e| panic!("{e}"));
        Filter::new(make(program), "shared", blocks).unwrap()
    };
    let choose = filter(CHOOSE);
    for bound in [2, 8, 3] {
        let filter = (bound != 8).then(|| filter(WANT));
        let wish = Subscription { bound, overflow: Overflow::DropOldest, filter };
        channel.subscribe(wish).unwrap();
    }
    channel.set_filter(Some(choose));
    channel
}

/// Sends and receives; returns the delivered events, as numbers.
fn run(channel: &mut Channel, blocks: &mut SharedBlocks, from: u64, got: &mut Vec<(u64, u64)>) {
    for turn in from..from + 200 {
        let now = Instant(turn * 1000);
        let mut record = [0; 16];
        record[0] = (turn * 7 % 100) as u8;
        record[8..].copy_from_slice(&(turn * 37 % 2000).to_le_bytes());
        let deadline = (turn % 3 == 0).then(|| now + Duration::from_nanos(turn % 5 * 900));
        let event = Event { deadline, attributes: Attributes::default(), record: &record };
        channel.publish(now, event, blocks).unwrap();
        if turn % 2 == 0
            && let Some(delivery) = channel.poll(now)
        {
            got.push((delivery.sequence, u64::from(delivery.event.record[0])));
        }
    }
}

fn whole(make: Make<'_>) -> Vec<(u64, u64)> {
    let mut blocks = SharedBlocks::default();
    let mut channel = channel(make, &mut blocks);
    let mut got = Vec::with_capacity(1000);
    // Long enough for the store to have grown to its largest size.
    for part in 0..4 {
        run(&mut channel, &mut blocks, part * 200, &mut got);
    }
    let before = TAKEN.get();
    run(&mut channel, &mut blocks, 800, &mut got);
    assert_eq!(TAKEN.get(), before, "no memory is taken for an event");
    got
}

#[test]
fn filters_do_the_same_wherever_they_run() {
    let walked = whole(&mut |program| Box::new(Interpreted::new(program)));
    assert!(walked.len() > 50, "{}", walked.len());
    let mut compiler = Compiler::new().unwrap();
    let native = whole(&mut |program| Box::new(Native::new(program, &mut compiler).unwrap()));
    assert_eq!(walked, native);
    if let Err(why) = available() {
        println!("SKIPPED: no handlers in this kernel: {why}");
        return;
    }
    let kernel =
        whole(&mut |program| Box::new(Kernel::new(program, Hook::Call).expect("it loads")));
    assert_eq!(walked, kernel);
}
