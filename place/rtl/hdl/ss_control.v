// Control and steering: LOAD, then SCHEDULE and PRIORITY_UPDATE by turns (Fig. 6).
//
// SCHEDULE makes the passes of the network; it waits in the first one for `go_i`, for frames that
// are coming up, and for overdue deadlines, which it has the slots expire one at a time (in steady
// operation PRIORITY_UPDATE expires them, and there are none left). PRIORITY_UPDATE serves the
// winner, expires the losers, and moves the time on by `advance_i`. With AHEAD = 1 that happens in
// the last clock of SCHEDULE, and there is no PRIORITY_UPDATE.
//
// Clocks to the winner: log2 N (MODE 0 and 1), 1 + log2 N (log2 N - 1) (MODE 2), 1 (MODE 3, a
// tree); twice as many with PIPE = 1; one more a decision with AHEAD = 0.
`default_nettype none

module ss_control #(
  parameter LOG_N = 2,
  parameter MODE = 0,
  parameter AHEAD = 0,
  parameter PIPE = 0
) (
  input  wire             clk_i,
  input  wire             rst_i,
  input  wire             run_i,
  input  wire             go_i,
  input  wire [15:0]      time_i,     // the time of the first decision, taken during LOAD
  input  wire [7:0]       advance_i,
  // From slots and memory
  input  wire             due_i,      // some head is overdue
  input  wire             heads_ok_i, // every frame that could be a head is one
  input  wire             all_ok_i,   // and every slot knows the frame behind its head
  // To the network
  output wire             first_pass_o,
  output wire             take_o,
  output wire             straight_o,
  output wire [LOG_N-1:0] reverse_o,
  // To the slots
  output wire [15:0]      now_o,
  output wire [15:0]      update_now_o,
  output wire             open_o,
  output wire             sample_o,
  output wire             update_o,
  output wire             serving_o,
  // To the world
  output wire             ready_o,    // waits for `go_i` alone
  output wire             found_o,    // the first clock in which the network shows the winner
  output wire             decided_o,  // it has been served, or there was none; for one clock
  output wire             updated_o   // the slots tell the events of an update; for one clock
);
  localparam [1:0] LOAD = 2'd0, SCHEDULE = 2'd1, PRIORITY_UPDATE = 2'd2;
  localparam PASSES = (MODE == 3) ? 1 : (MODE == 2) ? 1 + LOG_N * (LOG_N - 1) : LOG_N;
  localparam [5:0] LAST_PASS = PASSES - 1;

  reg  [1:0]  state_q;
  reg  [5:0]  pass_q;
  reg         first_q;    // pass 0; a register of its own, for it steers every multiplexer
  reg         second_q;   // the second clock of a pass
  reg  [15:0] now_q;
  reg         found_q, served_q, updated_q;

  wire scheduling = state_q == SCHEDULE;
  wire first      = first_q;
  wire last       = pass_q == LAST_PASS;
  wire waiting    = scheduling & first & ~second_q;
  wire expire     = waiting & due_i & all_ok_i;
  // A decision of one clock must be able to end in it.
  wire can_end    = (AHEAD == 0) | (MODE != 3) | all_ok_i;
  wire may_start  = waiting & ~due_i & heads_ok_i & can_end;
  wire start      = may_start & go_i;
  // A pass goes on to its second clock, or is complete.
  wire moving     = waiting ? start : scheduling;
  wire complete   = moving & ((PIPE == 0) | second_q);
  wire held       = (AHEAD != 0) & last & ~all_ok_i;
  wire take       = complete & ~held;
  wire decided    = take & last;
  wire update     = (AHEAD != 0) ? decided : (state_q == PRIORITY_UPDATE) & all_ok_i;
  wire [15:0] later = now_q + {8'd0, advance_i};

  always @(posedge clk_i) begin
    if (rst_i) begin
      state_q   <= LOAD;
      pass_q    <= 6'd0;
      first_q   <= 1'b1;
      second_q  <= 1'b0;
      found_q   <= 1'b0;
      served_q  <= 1'b0;
      updated_q <= 1'b0;
    end else begin
      found_q   <= decided;
      served_q  <= update;
      updated_q <= update | expire;
      if (state_q == LOAD) begin
        if (run_i) state_q <= SCHEDULE;
      end else if (scheduling) begin
        if (moving & ~held) second_q <= (PIPE != 0) & ~second_q;
        if (take) pass_q <= last ? 6'd0 : pass_q + 6'd1;
        if (take) first_q <= last;
        if (decided & (AHEAD == 0)) state_q <= PRIORITY_UPDATE;
      end else if (update) begin
        state_q <= SCHEDULE;
      end
    end
    if (state_q == LOAD) now_q <= time_i;
    else if (update)     now_q <= later;
  end

  assign first_pass_o = first;
  assign take_o       = take;
  assign now_o        = now_q;
  wire   not_later    = (AHEAD == 0) ? state_q != PRIORITY_UPDATE : ~last | ((MODE == 3) & expire);
  assign update_now_o = not_later ? now_q : later;
  assign open_o       = waiting | update;
  assign sample_o     = start;
  assign update_o     = update | expire;
  assign serving_o    = (AHEAD != 0) ? served_q : state_q == PRIORITY_UPDATE;
  assign ready_o      = may_start;
  assign found_o      = found_q;
  assign decided_o    = served_q;
  assign updated_o    = updated_q;

  // The sort: phase m = 1 ..= log2 N, step k = 1 ..= log2 N; the passes without a compare of the
  // first phase are left out, for the order of the slots means nothing. A block compares if
  // m + k > log2 N; it sorts downwards if bit m + k - log2 N - 1 of its number is set, but not in
  // the last phase.
  generate
    if (MODE == 2) begin : gen_sort
      localparam [3:0] LOG = LOG_N;
      reg [3:0] phase_q, step_q;
      always @(posedge clk_i) begin
        if (rst_i | decided) begin
          phase_q <= 4'd1;
          step_q  <= LOG;
        end else if (take) begin
          phase_q <= (step_q == LOG) ? phase_q + 4'd1 : phase_q;
          step_q  <= (step_q == LOG) ? 4'd1 : step_q + 4'd1;
        end
      end
      wire [3:0] sum = phase_q + step_q;
      assign straight_o = sum <= LOG;
      genvar j;
      for (j = 0; j < LOG_N; j = j + 1) begin : gen_reverse
        localparam [3:0] BIT = j + 1;
        assign reverse_o[j] = (sum == LOG + BIT) & (phase_q != LOG);
      end
    end else begin : gen_no_sort
      assign straight_o = 1'b0;
      assign reverse_o  = {LOG_N{1'b0}};
    end
  endgenerate
endmodule

`default_nettype wire
