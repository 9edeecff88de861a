// Table 2 once more, as plainly as it can be said: the specification that ss_order is proved equal
// to. It shares no line with it: fields by name, rules one after the other, and fractions by the
// definition of order, with 0/y' as 0. Only the multiplier is the design's own, since two different
// circuits for one product are more than a solver can compare; tb/tb_product.v tries that one on all
// 65,536 pairs.
`default_nettype none

module order_spec #(
  parameter ID_W = 5
) (
  input  wire [ID_W+48:0] a_i,
  input  wire [ID_W+48:0] b_i,
  input  wire             min_first_i,
  output reg              a_first_o
);
  reg [15:0]      a_deadline, b_deadline, a_arrival, b_arrival, distance, waited;
  reg [7:0]       a_x, b_x, a_y, b_y;
  reg [ID_W-1:0]  a_id, b_id;
  reg             a_there, b_there, fcfs, fraction_equal, fraction_below;
  wire [15:0]     a_times_b, b_times_a;  // a_x * b_y, b_x * a_y
  ss_product u_ab (.x_i(a_x), .y_i(b_y), .p_o(a_times_b));
  ss_product u_ba (.x_i(b_x), .y_i(a_y), .p_o(b_times_a));
  always @* begin
    {a_there, a_deadline, a_x, a_y, a_arrival, a_id} = a_i;
    {b_there, b_deadline, b_x, b_y, b_arrival, b_id} = b_i;

    // RFC 1982: b comes after a if it is 1 to 2^15 - 1 steps ahead of a. It leaves 2^15 undefined;
    // here a goes first if deadlines are so far apart, the higher id if arrivals are.
    distance = b_deadline - a_deadline;
    waited   = b_arrival - a_arrival;
    fcfs = (waited == 16'd0)    ? (a_id < b_id) :
           (waited == 16'h8000) ? (a_id >= b_id) : (waited < 16'h8000);

    // x / y of each, brought to the denominator a_y * b_y; a zero numerator is zero.
    if (a_x == 8'd0 || b_x == 8'd0) begin
      fraction_equal = (a_x == 8'd0) && (b_x == 8'd0);
      fraction_below = (a_x == 8'd0) && (b_x != 8'd0);
    end else begin
      fraction_equal = a_times_b == b_times_a;
      fraction_below = a_times_b < b_times_a;
    end

    if (distance != 16'd0)       a_first_o = distance <= 16'h8000;   // earliest deadline first
    else if (!fraction_equal)    a_first_o = fraction_below;         // lowest window-constraint
    else if (a_x == 8'd0)                                            // zero window-constraints:
      if (a_y > b_y)             a_first_o = 1'b1;                   // highest denominator
      else if (a_y < b_y)        a_first_o = 1'b0;
      else                       a_first_o = fcfs;
    else                                                             // equal, non-zero:
      if (a_x < b_x)             a_first_o = 1'b1;                   // lowest numerator
      else if (a_x > b_x)        a_first_o = 1'b0;
      else                       a_first_o = fcfs;                   // all other cases

    if (min_first_i)             a_first_o = !a_first_o;
    if (a_there && !b_there)     a_first_o = 1'b1;
    if (!a_there && b_there)     a_first_o = 1'b0;
  end
endmodule

`default_nettype wire
