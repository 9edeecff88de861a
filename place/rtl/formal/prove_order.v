// ss_order equals Table 2 on all inputs: 2^54 by 2^54 attribute words, both directions.
`default_nettype none

module prove_order (
  input wire [53:0] a_i,
  input wire [53:0] b_i,
  input wire        min_first_i
);
  wire hard, plain;
  ss_order #(.ID_W(5), .PIPE(0)) u_order (
    .clk_i(1'b0), .a_i(a_i), .b_i(b_i), .min_first_i(min_first_i), .a_first_o(hard)
  );
  order_spec #(.ID_W(5)) u_spec (
    .a_i(a_i), .b_i(b_i), .min_first_i(min_first_i), .a_first_o(plain)
  );
  always @* assert (hard == plain);
endmodule

`default_nettype wire
