// The product of two 8-bit numbers, used twice by ss_order, to compare x'/y' of two streams by cross
// multiplication.
//
// FAST = 0: a tree of four, two and one additions, the smaller. FAST = 1: what the synthesiser makes
// of `*` (carry-save), a fifth larger and faster; it goes with the piped compare.
`default_nettype none

module ss_product #(
  parameter FAST = 0
) (
  input  wire [7:0]  x_i,
  input  wire [7:0]  y_i,
  output wire [15:0] p_o
);
  generate
    if (FAST != 0) begin : gen_fast
      assign p_o = {8'd0, x_i} * {8'd0, y_i};
    end else begin : gen_tree
      // Rows two by two: y * x[1:0], y * x[3:2], ...
      wire [9:0] s0 = {2'b0, y_i & {8{x_i[0]}}} + {1'b0, y_i & {8{x_i[1]}}, 1'b0};
      wire [9:0] s1 = {2'b0, y_i & {8{x_i[2]}}} + {1'b0, y_i & {8{x_i[3]}}, 1'b0};
      wire [9:0] s2 = {2'b0, y_i & {8{x_i[4]}}} + {1'b0, y_i & {8{x_i[5]}}, 1'b0};
      wire [9:0] s3 = {2'b0, y_i & {8{x_i[6]}}} + {1'b0, y_i & {8{x_i[7]}}, 1'b0};

      wire [11:0] low  = {2'b0, s0} + {s1, 2'b0};
      wire [11:0] high = {2'b0, s2} + {s3, 2'b0};

      assign p_o = {4'b0, low} + {high, 4'b0};
    end
  endgenerate
endmodule

`default_nettype wire
