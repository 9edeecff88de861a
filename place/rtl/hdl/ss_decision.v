// Decision block: orders two streams and routes both, the first to `first_o`, the other to
// `second_o`.
//
// `reverse_i` exchanges the outputs and `straight_i` keeps the inputs where they are; the full sort
// needs both. Winner-only routing leaves `second_o` open, and synthesis drops its multiplexer.
`default_nettype none

module ss_decision #(
  parameter ID_W = 5,
  parameter PIPE = 0
) (
  input  wire             clk_i,
  input  wire [ID_W+48:0] a_i,
  input  wire [ID_W+48:0] b_i,
  input  wire             min_first_i,
  input  wire             reverse_i,
  input  wire             straight_i,
  output wire [ID_W+48:0] first_o,
  output wire [ID_W+48:0] second_o
);
  wire a_first;
  ss_order #(.ID_W(ID_W), .PIPE(PIPE)) u_order (
    .clk_i(clk_i), .a_i(a_i), .b_i(b_i), .min_first_i(min_first_i), .a_first_o(a_first)
  );

  wire keep = straight_i | (a_first ^ reverse_i);
  assign first_o  = keep ? a_i : b_i;
  assign second_o = keep ? b_i : a_i;
endmodule

`default_nettype wire
