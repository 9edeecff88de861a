// Rules a and b of DWCS: the next current window x'/y' of a stream.
//
// Rule a (`served_i`): if y' > x' then y' - 1; else, if y' = x' and x' > 0, both - 1; then, if both
// are 0, x/y again. Rule b (`missed_i`): if x' > 0 then both - 1, and if both are 0, x/y again;
// else y' + 1, and the miss is a violation. Neither touches a window of 0/0; a miss of it is a
// violation. At most one of the two is given. y' stays at 255 once it is there.
`default_nettype none

module ss_rules (
  input  wire       served_i,
  input  wire       missed_i,
  input  wire [7:0] x_base_i,
  input  wire [7:0] y_base_i,
  input  wire [7:0] x_i,
  input  wire [7:0] y_i,
  output wire [7:0] x_o,
  output wire [7:0] y_o,
  output wire       violation_o,
  output wire       y_full_o
);
  wire has_window = y_base_i != 8'd0;
  wire x_zero     = x_i == 8'd0;
  wire grow       = missed_i & x_zero;
  wire y_full     = y_i == 8'hff;

  // Both rules leave 0/0 behind exactly if y' was 1 (or 0, for 0/0 itself, which x/y is too).
  wire restore = (served_i | (missed_i & ~x_zero)) & (y_i[7:1] == 7'd0);
  wire step_y  = (served_i | missed_i) & has_window & ~(grow & y_full);
  wire step_x  = ~x_zero & (missed_i | (served_i & (x_i == y_i)));

  // What is added is -1, 0 or 1, not chosen afterwards: a table a bit less.
  wire [7:0] x_step = x_i + {8{step_x}};
  wire [7:0] y_step = y_i + {{7{step_y & ~grow}}, step_y};

  assign x_o = restore ? x_base_i : x_step;
  assign y_o = restore ? y_base_i : y_step;
  assign violation_o = grow;
  assign y_full_o = grow & y_full & has_window;
endmodule

`default_nettype wire
