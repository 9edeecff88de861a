// The rules of Table 2 as one would write them down: one after the other, products by `*`. Same
// ports as place/rtl/hdl/ss_order.v, in whose place it is read to see what that one gains.
`default_nettype none

/* verilator lint_off DECLFILENAME */
module ss_order #(
  parameter ID_W = 5,
  parameter PIPE = 0
) (
  input  wire             clk_i,
  input  wire [ID_W+48:0] a_i,
  input  wire [ID_W+48:0] b_i,
  input  wire             min_first_i,
  output reg              a_first_o
);
  wire [15:0] deadline_diff = a_i[ID_W+47:ID_W+32] - b_i[ID_W+47:ID_W+32];
  wire [7:0]  a_x = a_i[ID_W+31:ID_W+24];
  wire [7:0]  b_x = b_i[ID_W+31:ID_W+24];
  wire [7:0]  a_y = a_i[ID_W+23:ID_W+16];
  wire [7:0]  b_y = b_i[ID_W+23:ID_W+16];
  wire [15:0] a_share = a_x * b_y;
  wire [15:0] b_share = b_x * a_y;
  wire [15:0] arrival_diff = a_i[ID_W+15:ID_W] - b_i[ID_W+15:ID_W];
  wire        by_arrival = (arrival_diff != 16'd0) ? arrival_diff[15] : a_i[ID_W-1:0] < b_i[ID_W-1:0];

  always @* begin
    if (deadline_diff != 16'd0)            a_first_o = deadline_diff[15];
    else if (a_x == 8'd0 && b_x == 8'd0)   a_first_o = (a_y != b_y) ? a_y > b_y : by_arrival;
    else if (a_x == 8'd0 || b_x == 8'd0)   a_first_o = a_x == 8'd0;
    else if (a_share != b_share)           a_first_o = a_share < b_share;
    else if (a_x != b_x)                   a_first_o = a_x < b_x;
    else                                   a_first_o = by_arrival;
    if (min_first_i)                       a_first_o = ~a_first_o;
    if (a_i[ID_W+48] != b_i[ID_W+48])      a_first_o = a_i[ID_W+48];
  end
  wire unused = clk_i ^ (PIPE != 0);
endmodule

`default_nettype wire
