// ss_step, one step of the register block, equals the text of the model for all states and inputs:
// who leaves, who is kept, what is counted, and the deadline of the frame that comes up. The windows
// are prove_rules' business; here it is shown that rule a goes with the winner, rule b with a miss.
`default_nettype none

module prove_step (
  input wire [15:0] period_i,
  input wire [7:0]  x_base_i,
  input wire [7:0]  y_base_i,
  input wire        send_late_i,
  input wire        backlogged_i,
  input wire        update_i,
  input wire        win_i,
  input wire        open_i,
  input wire [15:0] now_i,
  input wire        write_i,
  input wire [15:0] write_arrival_i,
  input wire [68:0] state_i
);
  wire [68:0] hard;
  wire sent, late, missed, dropped, violation, far, stale, full;
  ss_step u_step (
    .period_i(period_i), .x_base_i(x_base_i), .y_base_i(y_base_i), .send_late_i(send_late_i),
    .backlogged_i(backlogged_i), .update_i(update_i), .win_i(win_i), .open_i(open_i),
    .now_i(now_i), .write_i(write_i), .write_arrival_i(write_arrival_i), .state_i(state_i),
    .state_o(hard), .sent_o(sent), .late_o(late), .missed_o(missed), .dropped_o(dropped),
    .violation_o(violation), .far_o(far), .stale_o(stale), .y_full_o(full)
  );

  reg        valid, tardy, live, first, behind, was_valid, was_ahead;
  reg        told_sent, told_late, told_missed, told_dropped;
  reg [15:0] deadline, arrival, next, distance;
  reg [7:0]  x, y;
  wire [7:0] x_after, y_after;
  wire       violation_after, full_after;
  ss_rules u_rules (
    .served_i(told_sent), .missed_i(told_missed), .x_base_i(x_base_i), .y_base_i(y_base_i),
    .x_i(x), .y_i(y), .x_o(x_after), .y_o(y_after), .violation_o(violation_after),
    .y_full_o(full_after)
  );
  always @* begin
    {valid, tardy, live, first, behind, deadline, arrival, next, x, y} = state_i;
    {told_sent, told_late, told_missed, told_dropped} = 4'd0;
    was_valid = valid;
    distance = deadline - now_i;
    was_ahead = distance[15] ? (distance == 16'h8000) : (distance != 16'd0);
    // A slot that stands empty long after its last deadline forgets it.
    distance = now_i - deadline;
    if (!was_valid && distance >= 16'h4000 && distance < 16'h8000) live = 1'b0;
    if (update_i && win_i) begin               // served
      told_sent = 1'b1;
      told_late = tardy;
      valid = 1'b0;
    end else if (update_i && was_valid && !was_ahead) begin
      told_missed = 1'b1;
      if (send_late_i) begin                   // kept: due again one period later
        deadline = deadline + period_i;
        tardy = 1'b1;
      end else begin                           // lost
        told_dropped = 1'b1;
        valid = 1'b0;
      end
    end
    if (!valid && open_i && (behind || backlogged_i)) begin
      valid = 1'b1;
      tardy = 1'b0;
      arrival = next;
      behind = 1'b0;
      distance = deadline - next;
      if (!first) begin
        // max(deadline of the frame before, arrival) + period; `live` as it was before this step.
        if (state_i[66] && (backlogged_i || was_ahead || !distance[15])) deadline = deadline + period_i;
        else deadline = next + period_i;
      end
      live = 1'b1;
      first = 1'b0;
    end
    if (write_i) begin
      behind = 1'b1;
      next = write_arrival_i;
    end
  end

  always @* begin
    // A winner has a head; a late frame is marked only on a head; and an arrival is written only
    // where there is room.
    assume (!(update_i && win_i) || state_i[68]);
    assume (!state_i[67] || state_i[68]);
    assert (hard[68] == valid);
    assert (!valid || hard[67] == tardy);
    assert (hard[66] == live);
    assert (hard[65] == first);
    assert (hard[64] == behind);
    assert (hard[63:48] == deadline);
    assert (hard[47:32] == arrival);
    assert (hard[31:16] == next);
    assert (hard[15:8] == x_after);
    assert (hard[7:0] == y_after);
    assert ({sent, late, missed, dropped} == {told_sent, told_late, told_missed, told_dropped});
    assert (violation == violation_after);
  end
endmodule

`default_nettype wire
