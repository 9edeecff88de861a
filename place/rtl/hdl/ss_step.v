// One step of a stream's state: served, or its deadline missed, or neither; and the next frame
// brought up. Combinational; ss_slot holds the state.
//
// State word, from the top: valid (a head frame is there), missed (it has missed a deadline), live
// (`deadline` bounds the next frame's), first (`deadline` is stated for the next frame),
// next_valid, deadline (16), arrival (16), next (16: the arrival of the frame behind the head),
// x' (8), y' (8). While there is no head, `deadline` is that of the frame before.
//
// A frame's deadline is the later of the one before and its arrival, plus the period. All times
// are 16-bit serial numbers; `far_o`, `stale_o` and `y_full_o` say when they, or y', went out of
// range. Those three are for simulation; left open, they cost nothing.
`default_nettype none

module ss_step (
  input  wire [15:0] period_i,
  input  wire [7:0]  x_base_i,
  input  wire [7:0]  y_base_i,
  input  wire        send_late_i,
  input  wire        backlogged_i,

  input  wire        update_i,   // a decision's update: the winner is served, the others expire
  input  wire        win_i,      // this slot is served
  input  wire        open_i,     // a frame may come up
  input  wire [15:0] now_i,      // deadlines up to here have been missed
  input  wire        write_i,    // a frame's arrival comes from memory
  input  wire [15:0] write_arrival_i,

  input  wire [68:0] state_i,
  output wire [68:0] state_o,

  output wire [15:0] overdue_o,  // how long ago the deadline was; negative if it lies ahead

  output wire        sent_o,
  output wire        late_o,
  output wire        missed_o,
  output wire        dropped_o,
  output wire        violation_o,
  output wire        far_o,      // a deadline lies more than 32767 ahead
  output wire        stale_o,    // the head arrived 32767 ago or more
  output wire        y_full_o    // y' should have grown beyond 255
);
  wire        valid      = state_i[68];
  wire        missed     = state_i[67];
  wire        live       = state_i[66];
  wire        first      = state_i[65];
  wire        next_valid = state_i[64];
  wire [15:0] deadline   = state_i[63:48];
  wire [15:0] arrival    = state_i[47:32];
  wire [15:0] next       = state_i[31:16];
  wire [7:0]  x          = state_i[15:8];
  wire [7:0]  y          = state_i[7:0];

  wire [15:0] overdue = now_i - deadline;
  wire        ahead   = overdue[15];

  wire serve = update_i & win_i;
  wire miss  = update_i & ~win_i & valid & ~ahead;
  wire keep  = miss & send_late_i;
  wire drop  = miss & ~send_late_i;
  wire leave = serve | drop;
  wire bring = open_i & (leave | ~valid) & (next_valid | backlogged_i);

  /* verilator lint_off UNUSEDSIGNAL */
  wire [15:0] past_next = deadline - next;
  /* verilator lint_on UNUSEDSIGNAL */
  wire        from_deadline = keep | (live & (backlogged_i | ahead | ~past_next[15]));
  wire [15:0] base = from_deadline ? deadline : next;
  wire [15:0] following = period_i + base;  // in this order the choice of `base` costs no tables
  wire        move = keep | (bring & ~first);

  // An empty slot's last deadline is forgotten before it could seem to lie ahead again.
  wire forget = ~valid & ~overdue[15] & overdue[14];

  wire [7:0] x_next, y_next;
  ss_rules u_rules (
    .served_i(serve), .missed_i(miss), .x_base_i(x_base_i), .y_base_i(y_base_i),
    .x_i(x), .y_i(y), .x_o(x_next), .y_o(y_next),
    .violation_o(violation_o), .y_full_o(y_full_o)
  );

  assign state_o = {
    bring | (valid & ~leave),
    ~bring & (missed | keep),
    bring | (live & ~forget),
    first & ~bring,
    write_i | (next_valid & ~bring),
    move ? following : deadline,
    bring ? next : arrival,
    write_i ? write_arrival_i : next,
    x_next,
    y_next
  };

  assign overdue_o = overdue;
  assign sent_o    = serve;
  assign late_o    = serve & missed;
  assign missed_o  = miss;
  assign dropped_o = drop;

  // The new deadline against now, with a digit to spare.
  wire [15:0] base_ahead = base - now_i;
  wire [16:0] new_ahead  = {base_ahead[15], base_ahead} + {1'b0, period_i};
  assign far_o = move & ~new_ahead[16] & new_ahead[15];
  wire [15:0] age = now_i - arrival;
  assign stale_o = valid & ~backlogged_i & (age[15] | (&age[14:0]));
  /* verilator lint_off UNUSEDSIGNAL */
  wire unused_low = ^new_ahead[14:0];
  /* verilator lint_on UNUSEDSIGNAL */
endmodule

`default_nettype wire
