// Register base block ("stream slot"): what a stream asked for, where it stands, its counters.
//
// LOAD writes four words: 0 period (1 ..= 32767), 1 {x, y}, 2 the first frame's deadline, 3 flags,
// which also sets the stream back to its beginning. Flags: [0] keep late frames (`send`), [1]
// work-conserving, [2] word 2 is valid, [3] backlogged (there is always a next frame; all arrived
// at 0), [4] active.
//
// AHEAD = 0: the state moves on in PRIORITY_UPDATE, when the winner is known. AHEAD = 1 (compute
// ahead): in the last clock of SCHEDULE two states are computed, one for the winner and one for a
// loser; the next clock picks one, in front of the first compare of the next decision, so that the
// update takes no clock of its own.
//
// SPLIT = 1: `now_i` and `update_now_i` may differ in the clock in which a decision looks at the
// stream, so that it needs a second difference from the deadline; else `now_i` is not used.
//
// OBSERVE = 1 adds what only a simulation looks at: missed deadlines and range checks.
`default_nettype none

module ss_slot #(
  parameter ID_W = 5,
  parameter ID = 0,
  parameter CNT_W = 16,
  parameter AHEAD = 0,
  parameter SPLIT = 0,
  parameter OBSERVE = 0
) (
  input  wire             clk_i,
  input  wire             rst_i,
  // LOAD
  input  wire             load_i,
  input  wire [1:0]       load_word_i,
  input  wire [15:0]      load_data_i,
  // Frames
  input  wire             write_i,
  input  wire [15:0]      write_arrival_i,
  output wire             room_o,       // for the arrival of one more frame
  output wire             vacant_o,     // no head, whatever waits behind it
  output wire             rising_o,     // a head comes up as soon as it may
  // Decisions
  input  wire [15:0]      now_i,        // for eligibility, and for expiry before a decision
  input  wire [15:0]      update_now_i, // for expiry in the update
  input  wire             open_i,
  input  wire             sample_i,     // a decision begins
  input  wire             update_i,
  input  wire             serving_i,    // the update has a winner (AHEAD: the one before had)
  input  wire             serve_all_i,
  input  wire             winner_valid_i,
  input  wire [ID_W-1:0]  winner_id_i,
  output wire             due_o,
  output wire [ID_W+48:0] attribute_o,
  // Events, one clock after the update
  output wire             sent_o,
  output wire             late_o,
  output wire             missed_o,
  output wire             dropped_o,
  output wire             violation_o,
  // Counters: 0 sent, 1 late, 2 missed, 3 dropped, 4 violations, 5 {x', y'}; 0 while not read
  input  wire             reading_i,
  input  wire [2:0]       read_i,
  output wire [CNT_W-1:0] read_o,
  // OBSERVE
  output wire [15:0]      seen_deadline_o,
  output wire [2:0]       seen_range_o
);
  // What the stream asked for.
  reg [15:0] period_q;
  reg [7:0]  x_q, y_q;
  reg [4:0]  flags_q;
  always @(posedge clk_i) begin
    if (rst_i) begin
      flags_q <= 5'd0;
    end else if (load_i && load_word_i == 2'd3) begin
      flags_q <= load_data_i[4:0];
    end
    if (load_i && load_word_i == 2'd0) period_q <= load_data_i;
    if (load_i && load_word_i == 2'd1) {x_q, y_q} <= load_data_i;
  end
  wire send_late       = flags_q[0];
  wire work_conserving = flags_q[1];
  wire backlogged      = flags_q[3];
  wire active          = flags_q[4];

  // Where it stands.
  wire [68:0] state;
  wire [68:0] fresh = {1'b0, 1'b0, 1'b0, load_data_i[2], 1'b0, state[63:48], 32'd0, x_q, y_q};
  wire [68:0] dated = {state[68:64], load_data_i, state[47:0]};
  wire        begin_anew  = load_i & (load_word_i == 2'd3);
  wire        load_first  = load_i & (load_word_i == 2'd2);

  reg  in_block_q;
  wire win = serving_i & (serve_all_i ? in_block_q : (winner_valid_i & (winner_id_i == ID[ID_W-1:0])));

  wire sent, late, missed, dropped, violation, far, stale, y_full;
  wire [15:0] update_overdue;
  generate
    if (AHEAD != 0) begin : gen_ahead
      reg  [68:0] won_q, lost_q;
      wire [68:0] won_d, lost_d;
      assign state = win ? won_q : lost_q;
      wire [15:0] unused_overdue;  // equal to the other's
      wire won_late, lost_missed, lost_dropped, lost_violation, won_sent;
      wire won_far, lost_far, won_full, lost_full, won_stale;
      wire [2:0] unused_won;
      wire [1:0] unused_lost;
      ss_step u_win (
        .period_i(period_q), .x_base_i(x_q), .y_base_i(y_q), .send_late_i(send_late),
        .backlogged_i(backlogged), .update_i(update_i), .win_i(1'b1), .open_i(open_i),
        .now_i(update_now_i), .write_i(write_i), .write_arrival_i(write_arrival_i),
        .state_i(state), .state_o(won_d), .overdue_o(unused_overdue), .sent_o(won_sent), .late_o(won_late),
        .missed_o(unused_won[0]), .dropped_o(unused_won[1]), .violation_o(unused_won[2]),
        .far_o(won_far), .stale_o(won_stale), .y_full_o(won_full)
      );
      ss_step u_lose (
        .period_i(period_q), .x_base_i(x_q), .y_base_i(y_q), .send_late_i(send_late),
        .backlogged_i(backlogged), .update_i(update_i), .win_i(1'b0), .open_i(open_i),
        .now_i(update_now_i), .write_i(write_i), .write_arrival_i(write_arrival_i),
        .state_i(state), .state_o(lost_d), .overdue_o(update_overdue),
        .sent_o(unused_lost[0]), .late_o(unused_lost[1]),
        .missed_o(lost_missed), .dropped_o(lost_dropped), .violation_o(lost_violation),
        .far_o(lost_far), .stale_o(stale), .y_full_o(lost_full)
      );
      reg late_q, missed_q, dropped_q, violation_q;
      always @(posedge clk_i) begin
        if (begin_anew) begin
          won_q  <= fresh;
          lost_q <= fresh;
        end else if (load_first) begin
          won_q  <= dated;
          lost_q <= dated;
        end else begin
          won_q  <= won_d;
          lost_q <= lost_d;
        end
        late_q      <= won_late;
        missed_q    <= lost_missed & ~rst_i;
        dropped_q   <= lost_dropped & ~rst_i;
        violation_q <= lost_violation & ~rst_i;
      end
      assign sent      = win;
      assign late      = win & late_q;
      assign missed    = ~win & missed_q;
      assign dropped   = ~win & dropped_q;
      assign violation = ~win & violation_q;
      // A check may speak of a state that is not picked: it is kept with that state.
      if (OBSERVE != 0) begin : gen_range
        reg [1:0] won_range_q, lost_range_q;
        always @(posedge clk_i) begin
          won_range_q  <= {won_full, won_far};
          lost_range_q <= {lost_full, lost_far};
        end
        assign {y_full, far} = win ? won_range_q : lost_range_q;
      end else begin : gen_no_range
        wire unused_range = ^{won_full, won_far, lost_full, lost_far};
        assign {y_full, far} = 2'b00;
      end
      wire unused_ahead = ^{unused_overdue, unused_won, unused_lost, won_sent, won_stale};
    end else begin : gen_plain
      reg  [68:0] state_q;
      wire [68:0] state_d;
      assign state = state_q;
      wire step_sent, step_late, step_missed, step_dropped, step_violation;
      ss_step u_step (
        .period_i(period_q), .x_base_i(x_q), .y_base_i(y_q), .send_late_i(send_late),
        .backlogged_i(backlogged), .update_i(update_i), .win_i(win), .open_i(open_i),
        .now_i(update_now_i), .write_i(write_i), .write_arrival_i(write_arrival_i),
        .state_i(state_q), .state_o(state_d), .overdue_o(update_overdue), .sent_o(step_sent), .late_o(step_late),
        .missed_o(step_missed), .dropped_o(step_dropped), .violation_o(step_violation),
        .far_o(far), .stale_o(stale), .y_full_o(y_full)
      );
      reg [4:0] event_q;
      always @(posedge clk_i) begin
        if (begin_anew)      state_q <= fresh;
        else if (load_first) state_q <= dated;
        else                 state_q <= state_d;
        if (rst_i) event_q <= 5'd0;
        else       event_q <= {step_sent, step_late, step_missed, step_dropped, step_violation};
      end
      assign {sent, late, missed, dropped, violation} = event_q;
    end
  endgenerate

  // What the decision blocks see.
  wire        valid    = state[68];
  wire [15:0] overdue  = (SPLIT != 0) ? now_i - state[63:48] : update_overdue;
  /* verilator lint_off UNUSEDSIGNAL */
  wire [15:0] unready  = overdue + period_q;
  /* verilator lint_on UNUSEDSIGNAL */
  wire        ready    = work_conserving | ~unready[15];
  wire        eligible = valid & ready;
  assign due_o       = valid & ~overdue[15];
  assign attribute_o = {eligible, state[63:48], state[15:0], state[47:32], ID[ID_W-1:0]};
  assign room_o      = active & ~backlogged & ~state[64];
  assign vacant_o    = ~valid;
  assign rising_o    = ~valid & (state[64] | backlogged);
  always @(posedge clk_i) begin
    if (sample_i) in_block_q <= eligible;
  end

  // Counters. They wrap; whoever reads them does so often enough. A stream that drops late frames
  // has dropped what it missed, and the other kind nothing: that takes no counter.
  reg [CNT_W-1:0] sent_q, late_q, missed_q, violations_q;
  always @(posedge clk_i) begin
    if (begin_anew) begin
      sent_q       <= {CNT_W{1'b0}};
      late_q       <= {CNT_W{1'b0}};
      missed_q     <= {CNT_W{1'b0}};
      violations_q <= {CNT_W{1'b0}};
    end else begin
      sent_q       <= sent_q + {{CNT_W-1{1'b0}}, sent};
      late_q       <= late_q + {{CNT_W-1{1'b0}}, late};
      missed_q     <= missed_q + {{CNT_W-1{1'b0}}, missed};
      violations_q <= violations_q + {{CNT_W-1{1'b0}}, violation};
    end
  end
  wire [CNT_W+15:0] window_wide = {{CNT_W{1'b0}}, state[15:0]};
  wire read_sent       = reading_i & (read_i == 3'd0);
  wire read_late       = reading_i & (read_i == 3'd1);
  wire read_missed     = reading_i & ((read_i == 3'd2) | ((read_i == 3'd3) & ~send_late));
  wire read_violations = reading_i & (read_i == 3'd4);
  wire read_window     = reading_i & (read_i == 3'd5);
  assign read_o = (sent_q & {CNT_W{read_sent}}) | (late_q & {CNT_W{read_late}}) |
                  (missed_q & {CNT_W{read_missed}}) | (violations_q & {CNT_W{read_violations}}) |
                  (window_wide[CNT_W-1:0] & {CNT_W{read_window}});
  assign sent_o      = sent;
  assign late_o      = late;
  assign missed_o    = missed;
  assign dropped_o   = dropped;
  assign violation_o = violation;
  wire unused_bits = ^{window_wide[CNT_W+15:CNT_W], flags_q[2]};

  generate
    if (OBSERVE != 0) begin : gen_observe
      reg [15:0] deadline_q;
      reg [2:0]  range_q;
      always @(posedge clk_i) begin
        deadline_q <= state[63:48];
        if (rst_i | begin_anew) range_q <= 3'd0;
        else                    range_q <= range_q | {y_full, stale, far};
      end
      assign seen_deadline_o = deadline_q;
      assign seen_range_o    = range_q;
    end else begin : gen_blind
      wire unused_range = ^{y_full, stale, far};
      assign seen_deadline_o = 16'd0;
      assign seen_range_o    = 3'd0;
    end
  endgenerate
endmodule

`default_nettype wire
