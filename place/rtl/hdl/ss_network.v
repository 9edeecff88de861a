// Recirculating shuffle-exchange: N/2 decision blocks and one wiring, passed through several times.
//
// The first pass takes the slots' attributes, the others what the pass before has left in `ring_q`.
//   MODE 0  winner only: winners go to the lower half, log2 N passes; the ring is N/2 words
//   MODE 1  partial block: winners go to the lower half and losers to the upper one, log2 N passes;
//           the first and the last come out right, what lies between them need not be in order
//   MODE 2  full sort: a perfect shuffle after each compare (Stone's form of Batcher's bitonic
//           sort); `reverse_i` and `straight_i` say what each pass does, ss_control counts them
// With PIPE = 1 a pass takes two clocks; `take_i` comes in the second.
`default_nettype none

module ss_network #(
  parameter N = 4,
  parameter LOG_N = 2,
  parameter ID_W = 5,
  parameter MODE = 0,
  parameter PIPE = 0
) (
  input  wire                     clk_i,
  input  wire [N*(ID_W+49)-1:0]   slots_i,
  input  wire                     first_pass_i,
  input  wire                     take_i,
  input  wire                     min_first_i,
  input  wire                     straight_i,
  input  wire [LOG_N-1:0]         reverse_i,  // bit j: blocks whose number has bit j set
  // Valid from the clock after the last pass to the next take.
  output wire                     winner_valid_o,
  output wire [ID_W-1:0]          winner_id_o,
  output wire [15:0]              winner_deadline_o,
  output wire [N-1:0]             block_valid_o,
  output wire [N*ID_W-1:0]        block_o     // in order, the first in the lowest bits
);
  localparam AW = ID_W + 49;
  localparam RING = (MODE == 0) ? N / 2 : N;

  reg  [RING*AW-1:0] ring_q;
  wire [N*AW-1:0]    out;  // the decision blocks' outputs: first and second, first and second, ...

  genvar i;
  generate
    for (i = 0; i < N / 2; i = i + 1) begin : gen_block
      wire [AW-1:0] a, b;
      if (MODE == 0 && i >= N / 4) begin : gen_first_only
        assign a = slots_i[(2*i)*AW +: AW];
        assign b = slots_i[(2*i+1)*AW +: AW];
      end else begin : gen_again
        assign a = first_pass_i ? slots_i[(2*i)*AW +: AW] : ring_q[(2*i)*AW +: AW];
        assign b = first_pass_i ? slots_i[(2*i+1)*AW +: AW] : ring_q[(2*i+1)*AW +: AW];
      end
      localparam [LOG_N-1:0] NUMBER = i;
      ss_decision #(.ID_W(ID_W), .PIPE(PIPE)) u_decision (
        .clk_i(clk_i), .a_i(a), .b_i(b), .min_first_i(min_first_i),
        .reverse_i((MODE == 2) & (|(reverse_i & NUMBER))), .straight_i((MODE == 2) & straight_i),
        .first_o(out[(2*i)*AW +: AW]), .second_o(out[(2*i+1)*AW +: AW])
      );
    end

    // Where position p of the outputs goes, and where position p of the block is found.
    for (i = 0; i < N; i = i + 1) begin : gen_wire
      if (MODE == 2) begin : gen_shuffle
        localparam TO = (2 * i) % N + (2 * i) / N;
        always @(posedge clk_i) if (take_i) ring_q[TO*AW +: AW] <= out[i*AW +: AW];
        assign block_o[i*ID_W +: ID_W] = ring_q[TO*AW +: ID_W];
        assign block_valid_o[i]        = ring_q[TO*AW + AW - 1];
      end else if (MODE == 1) begin : gen_unshuffle
        localparam TO = i / 2 + (i % 2) * (N / 2);
        always @(posedge clk_i) if (take_i) ring_q[TO*AW +: AW] <= out[i*AW +: AW];
        assign block_o[i*ID_W +: ID_W] = ring_q[i*AW +: ID_W];
        assign block_valid_o[i]        = ring_q[i*AW + AW - 1];
      end else if (i % 2 == 0) begin : gen_winners
        always @(posedge clk_i) if (take_i) ring_q[(i/2)*AW +: AW] <= out[i*AW +: AW];
      end
      if (MODE == 0) begin : gen_no_block
        assign block_o[i*ID_W +: ID_W] = (i == 0) ? ring_q[ID_W-1:0] : {ID_W{1'b0}};
        assign block_valid_o[i]        = (i == 0) & ring_q[AW-1];
        if (i % 2 == 1) begin : gen_losers
          wire unused_loser = ^out[i*AW +: AW];
        end
      end
    end
  endgenerate

  assign winner_valid_o    = ring_q[AW-1];
  assign winner_id_o       = ring_q[ID_W-1:0];
  assign winner_deadline_o = ring_q[ID_W+47:ID_W+32];
  wire unused = (MODE == 2) ? 1'b0 : ^{straight_i, reverse_i};
endmodule

`default_nettype wire
