// The whole scheduler: ss_core with its memory interface. Ports are those of the two; README.md has
// the register map and the timing.
`default_nettype none

module ss_top #(
  parameter N = 4,
  parameter MODE = 0,
  parameter AHEAD = 0,
  parameter PIPE = 0,
  parameter CNT_W = 16,
  parameter OBSERVE = 0,
  parameter ID_W = (N <= 32) ? 5 : 6
) (
  input  wire              clk_i,
  input  wire              rst_i,
  input  wire              load_i,
  input  wire [ID_W-1:0]   load_id_i,
  input  wire [1:0]        load_word_i,
  input  wire [15:0]       load_data_i,
  input  wire              run_i,
  input  wire              go_i,
  input  wire [15:0]       time_i,
  input  wire [7:0]        advance_i,
  input  wire              min_first_i,
  input  wire              serve_all_i,
  input  wire [N-1:0]      queued_i,
  output wire              fetch_o,
  output wire [ID_W-1:0]   fetch_id_o,
  input  wire [15:0]       arrival_i,
  output wire              id_valid_o,
  output wire [ID_W-1:0]   id_o,
  output wire              settled_o,
  output wire              ready_o,
  output wire              found_o,
  output wire              decided_o,
  output wire              winner_valid_o,
  output wire [ID_W-1:0]   winner_id_o,
  output wire [15:0]       winner_deadline_o,
  output wire [N-1:0]      block_valid_o,
  output wire [N*ID_W-1:0] block_o,
  output wire [15:0]       now_o,
  output wire              updated_o,
  output wire [N-1:0]      sent_o,
  output wire [N-1:0]      late_o,
  output wire [N-1:0]      missed_o,
  output wire [N-1:0]      dropped_o,
  output wire [N-1:0]      violation_o,
  input  wire [ID_W-1:0]   read_id_i,
  input  wire [2:0]        read_i,
  output wire [CNT_W-1:0]  read_o,
  output wire [N*16-1:0]   seen_deadline_o,
  output wire [N*3-1:0]    seen_range_o
);
  wire              write, heads_ok, all_ok, rising;
  wire [ID_W-1:0]   write_id;
  wire [15:0]       write_arrival;
  wire [N-1:0]      room, vacant;

  ss_core #(
    .N(N), .MODE(MODE), .AHEAD(AHEAD), .PIPE(PIPE), .CNT_W(CNT_W), .OBSERVE(OBSERVE), .ID_W(ID_W)
  ) u_core (
    .clk_i(clk_i), .rst_i(rst_i), .load_i(load_i), .load_id_i(load_id_i),
    .load_word_i(load_word_i), .load_data_i(load_data_i), .run_i(run_i), .go_i(go_i),
    .time_i(time_i), .advance_i(advance_i), .min_first_i(min_first_i), .serve_all_i(serve_all_i),
    .write_i(write), .write_id_i(write_id), .write_arrival_i(write_arrival), .room_o(room),
    .vacant_o(vacant), .rising_o(rising), .heads_ok_i(heads_ok), .all_ok_i(all_ok),
    .ready_o(ready_o), .found_o(found_o), .decided_o(decided_o), .winner_valid_o(winner_valid_o),
    .winner_id_o(winner_id_o), .winner_deadline_o(winner_deadline_o),
    .block_valid_o(block_valid_o), .block_o(block_o), .now_o(now_o), .updated_o(updated_o),
    .sent_o(sent_o), .late_o(late_o), .missed_o(missed_o), .dropped_o(dropped_o),
    .violation_o(violation_o), .read_id_i(read_id_i), .read_i(read_i), .read_o(read_o),
    .seen_deadline_o(seen_deadline_o), .seen_range_o(seen_range_o)
  );

  ss_memory #(.N(N), .ID_W(ID_W)) u_memory (
    .clk_i(clk_i), .rst_i(rst_i), .queued_i(queued_i), .fetch_o(fetch_o),
    .fetch_id_o(fetch_id_o), .arrival_i(arrival_i), .id_valid_o(id_valid_o), .id_o(id_o),
    .enable_i(run_i), .room_i(room), .vacant_i(vacant), .write_o(write), .write_id_o(write_id),
    .write_arrival_o(write_arrival), .heads_ok_o(heads_ok), .all_ok_o(all_ok),
    .decided_i(decided_o), .whole_block_i(serve_all_i), .block_valid_i(block_valid_o),
    .block_i(block_o)
  );
  assign settled_o = all_ok & ~rising;
endmodule

`default_nettype wire
