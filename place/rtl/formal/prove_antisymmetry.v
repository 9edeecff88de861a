// Of two different eligible streams exactly one goes first, whichever way round they are asked; but
// for deadlines that lie exactly 0x8000 apart, where each goes before the other. CORNER leaves that
// case in, so that the solver must find it.
`default_nettype none

module prove_antisymmetry (
  input wire [53:0] a_i,
  input wire [53:0] b_i,
  input wire        min_first_i
);
  wire ab, ba;
  ss_order #(.ID_W(5), .PIPE(0)) u_ab (
    .clk_i(1'b0), .a_i(a_i), .b_i(b_i), .min_first_i(min_first_i), .a_first_o(ab)
  );
  ss_order #(.ID_W(5), .PIPE(0)) u_ba (
    .clk_i(1'b0), .a_i(b_i), .b_i(a_i), .min_first_i(min_first_i), .a_first_o(ba)
  );
  wire [15:0] distance = a_i[52:37] - b_i[52:37];
  always @* begin
    assume (a_i[4:0] != b_i[4:0]);
    assume (a_i[53] | b_i[53]);
`ifndef CORNER
    assume (distance != 16'h8000);
`endif
    assert (ab != ba);
  end
endmodule

`default_nettype wire
