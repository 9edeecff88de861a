// The product of two 8-bit numbers as a tree of four, two and one additions.
//
// Used twice by ss_order, to compare x'/y' of two streams by cross multiplication. A tree, because
// the product lies on the longest path of the design: three carry chains instead of seven.
`default_nettype none

module ss_product (
  input  wire [7:0]  x_i,
  input  wire [7:0]  y_i,
  output wire [15:0] p_o
);
  // Rows two by two: y * x[1:0], y * x[3:2], ...
  wire [9:0] s0 = {2'b0, y_i & {8{x_i[0]}}} + {1'b0, y_i & {8{x_i[1]}}, 1'b0};
  wire [9:0] s1 = {2'b0, y_i & {8{x_i[2]}}} + {1'b0, y_i & {8{x_i[3]}}, 1'b0};
  wire [9:0] s2 = {2'b0, y_i & {8{x_i[4]}}} + {1'b0, y_i & {8{x_i[5]}}, 1'b0};
  wire [9:0] s3 = {2'b0, y_i & {8{x_i[6]}}} + {1'b0, y_i & {8{x_i[7]}}, 1'b0};

  wire [11:0] low  = {2'b0, s0} + {s1, 2'b0};
  wire [11:0] high = {2'b0, s2} + {s3, 2'b0};

  assign p_o = {4'b0, low} + {high, 4'b0};
endmodule

`default_nettype wire
