// Winner tree: N - 1 decision blocks, the winner in one pass. It is not in the paper, which spends N/2
// blocks and log2 N passes to save the area; here the area buys a decision in at most two clocks.
`default_nettype none

module ss_tree #(
  parameter N = 4,
  parameter ID_W = 5
) (
  input  wire                   clk_i,
  input  wire [N*(ID_W+49)-1:0] slots_i,
  input  wire                   take_i,
  input  wire                   min_first_i,
  output wire                   winner_valid_o,
  output wire [ID_W-1:0]        winner_id_o,
  output wire [15:0]            winner_deadline_o,
  output wire [N-1:0]           block_valid_o,
  output wire [N*ID_W-1:0]      block_o
);
  localparam AW = ID_W + 49;

  // Node 1 is the root; node n has 2n and 2n + 1 below it; the slots are nodes N to 2N - 1.
  /* verilator lint_off UNOPTFLAT */
  wire [2*N*AW-1:0] node;
  /* verilator lint_on UNOPTFLAT */
  assign node[2*N*AW-1:N*AW] = slots_i;
  assign node[AW-1:0]        = {AW{1'b0}};

  genvar i;
  generate
    for (i = 1; i < N; i = i + 1) begin : gen_node
      wire [AW-1:0] unused_loser;
      ss_decision #(.ID_W(ID_W), .PIPE(0)) u_decision (
        .clk_i(clk_i), .a_i(node[(2*i)*AW +: AW]), .b_i(node[(2*i+1)*AW +: AW]),
        .min_first_i(min_first_i), .reverse_i(1'b0), .straight_i(1'b0),
        .first_o(node[i*AW +: AW]), .second_o(unused_loser)
      );
    end
  endgenerate

  reg [AW-1:0] winner_q;
  always @(posedge clk_i) if (take_i) winner_q <= node[2*AW-1:AW];

  assign winner_valid_o    = winner_q[AW-1];
  assign winner_id_o       = winner_q[ID_W-1:0];
  assign winner_deadline_o = winner_q[ID_W+47:ID_W+32];
  assign block_valid_o     = {{N-1{1'b0}}, winner_valid_o};
  assign block_o           = {{(N-1)*ID_W{1'b0}}, winner_id_o};
  wire unused_low = ^{node[AW-1:0], winner_q[ID_W+31:ID_W]};
endmodule

`default_nettype wire
