// ss_rules equals rules a and b for all windows, and keeps what the rules rely on: x' <= y', and
// y' = 0 only for streams without a window.
`default_nettype none

module prove_rules (
  input wire       served_i,
  input wire       missed_i,
  input wire [7:0] x_base_i,
  input wire [7:0] y_base_i,
  input wire [7:0] x_i,
  input wire [7:0] y_i
);
  wire [7:0] x_hard, y_hard;
  wire       violation, full;
  ss_rules u_rules (
    .served_i(served_i), .missed_i(missed_i), .x_base_i(x_base_i), .y_base_i(y_base_i),
    .x_i(x_i), .y_i(y_i), .x_o(x_hard), .y_o(y_hard), .violation_o(violation), .y_full_o(full)
  );

  // The rules in the words of the paper, in numbers wide enough not to wrap.
  reg [9:0] x, y;
  reg       violated, saturated, window;
  always @* begin
    x = {2'd0, x_i};
    y = {2'd0, y_i};
    window = (y_base_i != 8'd0);
    violated = 1'b0;
    saturated = 1'b0;
    if (served_i) begin
      if (y > x) begin
        y = y - 10'd1;
      end else if (y == x && x > 10'd0) begin
        x = x - 10'd1;
        y = y - 10'd1;
      end
      if (x == 10'd0 && y == 10'd0 && window) begin
        x = {2'd0, x_base_i};
        y = {2'd0, y_base_i};
      end
    end else if (missed_i) begin
      if (x > 10'd0) begin
        x = x - 10'd1;
        y = y - 10'd1;
        if (x == 10'd0 && y == 10'd0) begin
          x = {2'd0, x_base_i};
          y = {2'd0, y_base_i};
        end
      end else begin
        violated = 1'b1;
        if (window) y = y + 10'd1;
        if (y > 10'd255) begin
          y = 10'd255;
          saturated = 1'b1;
        end
      end
    end
  end

  always @* begin
    assume (!(served_i && missed_i));
    assume (x_base_i <= y_base_i);
    assume (x_i <= y_i);
    assume ((y_i == 8'd0) == (y_base_i == 8'd0));
    assert ({2'd0, x_hard} == x);
    assert ({2'd0, y_hard} == y);
    assert (violation == violated);
    assert (full == saturated);
    assert (x_hard <= y_hard);
    assert ((y_hard == 8'd0) == (y_base_i == 8'd0));
  end
endmodule

`default_nettype wire
