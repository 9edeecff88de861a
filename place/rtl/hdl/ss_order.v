// Which of two streams goes first: all rules of ShareStreams Table 2, evaluated at once (Fig. 5).
//
// An attribute word is, from the top: eligible (1), deadline (16), x' (8), y' (8), arrival (16),
// stream id (ID_W): the fields of Fig. 4 with one bit more, because a slot may be empty.
//   1. earlier deadline                                   (serial-number arithmetic, 16 bits)
//   2. equal deadlines: lower x'/y'                       (exact, by cross multiplication; 0/y' is 0)
//   3. equal deadlines, both 0: higher y'
//   4. equal deadlines, equal and not 0: lower x'
//   5. all others: earlier arrival (serial), then lower id
// A stream that is not eligible comes after all that are. `min_first_i` turns the order of the
// eligible ones around. Deadlines that differ by exactly 0x8000, and likewise arrivals, have no
// serial order: then each counts as earlier than the other, and `a` goes first.
//
// PIPE = 1 puts a register between the products and the choice; the inputs must then be held for
// two clocks, and the answer holds in the second.
`default_nettype none

module ss_order #(
  parameter ID_W = 5,
  parameter PIPE = 0
) (
  input  wire             clk_i,
  input  wire [ID_W+48:0] a_i,
  input  wire [ID_W+48:0] b_i,
  input  wire             min_first_i,
  output wire             a_first_o
);
  wire        a_eligible = a_i[ID_W+48];
  wire        b_eligible = b_i[ID_W+48];
  wire [15:0] a_deadline = a_i[ID_W+47:ID_W+32];
  wire [15:0] b_deadline = b_i[ID_W+47:ID_W+32];
  wire [7:0]  a_x        = a_i[ID_W+31:ID_W+24];
  wire [7:0]  b_x        = b_i[ID_W+31:ID_W+24];
  wire [7:0]  a_y        = a_i[ID_W+23:ID_W+16];
  wire [7:0]  b_y        = b_i[ID_W+23:ID_W+16];

  // Rule 1. Only the sign of a serial difference is of interest.
  /* verilator lint_off UNUSEDSIGNAL */
  wire [15:0] deadline_diff = a_deadline - b_deadline;
  /* verilator lint_on UNUSEDSIGNAL */
  wire        deadline_equal = a_deadline == b_deadline;
  wire        deadline_before = deadline_diff[15];

  // Rule 2.
  wire [15:0] a_product, b_product;
  wire [15:0] a_share, b_share;
  ss_product #(.FAST(PIPE)) u_product_a (.x_i(a_x), .y_i(b_y), .p_o(a_product));
  ss_product #(.FAST(PIPE)) u_product_b (.x_i(b_x), .y_i(a_y), .p_o(b_product));
  generate
    if (PIPE != 0) begin : gen_pipe
      reg [15:0] a_product_q, b_product_q;
      always @(posedge clk_i) begin
        a_product_q <= a_product;
        b_product_q <= b_product;
      end
      assign a_share = a_product_q;
      assign b_share = b_product_q;
    end else begin : gen_flat
      wire unused_clk = clk_i;
      assign a_share = a_product;
      assign b_share = b_product;
    end
  endgenerate
  // Rules 3 to 5: which goes first if the products are equal, as they are if x' is 0 in both. The ids
  // are the lower digits of one long difference of arrivals, so they decide a tie. All of this
  // is known before the products are.
  /* verilator lint_off UNUSEDSIGNAL */
  wire [ID_W+15:0] arrival_diff = a_i[ID_W+15:0] - b_i[ID_W+15:0];
  /* verilator lint_on UNUSEDSIGNAL */
  wire arrival_before = arrival_diff[ID_W+15];
  wire y_above = a_y > b_y;
  wire y_equal = a_y == b_y;
  wire x_below = a_x < b_x;
  wire x_equal = a_x == b_x;
  wire same_x_first = (a_x == 8'd0 && !y_equal) ? y_above : arrival_before;
  wire tie_first    = x_equal ? same_x_first : x_below;

  // Rules 2 to 5 as the carry of one addition: b - a - 1, and 1 more if a tie goes to `a`, is not
  // negative. If x' is 0 in one of the two only, its product is 0, and a tie goes to it.
  /* verilator lint_off UNUSEDSIGNAL */
  wire [17:0] share_sum = {1'b0, b_share, tie_first} + {1'b0, ~a_share, 1'b1};
  /* verilator lint_on UNUSEDSIGNAL */
  wire window_first = share_sum[17];

  // The carry comes last of all: one choice behind it.
  wire by_window   = deadline_equal & ~(a_eligible ^ b_eligible);
  wire other_first = (a_eligible ^ b_eligible) ? a_eligible : (deadline_before ^ min_first_i);
  assign a_first_o = by_window ? (window_first ^ min_first_i) : other_first;
endmodule

`default_nettype wire
