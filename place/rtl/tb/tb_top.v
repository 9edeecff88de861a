// ss_top against the text of the model, decision by decision, in plain integers that do not wrap. For a
// second simulator (Icarus). Streams, windows and arrivals are random; time begins shortly before
// the end of 16 bits. Override N, MODE, AHEAD, PIPE and SEED with -P.
`timescale 1ns / 1ns
`default_nettype none

module tb_top;
  parameter N = 4, MODE = 0, AHEAD = 0, PIPE = 0, SEED = 1, TICKS = 2000;
  localparam ID_W = (N <= 32) ? 5 : 6;
  localparam START = 65000;

  reg clk = 0, rst = 1, load = 0, run = 0, go = 0;
  reg  [ID_W-1:0] load_id = 0, read_id = 0;
  reg  [1:0]      load_word = 0;
  reg  [15:0]     load_data = 0, arrival = 0;
  reg  [2:0]      read_sel = 0;
  reg  [N-1:0]    queued = 0;
  wire            fetch, ready, decided, updated, winner_valid, settled, found, id_valid;
  wire [ID_W-1:0] fetch_id, winner_id, id;
  wire [N-1:0]    sent, late, missed, dropped, violation, block_valid;
  wire [31:0]     read;
  wire [15:0]     now, winner_deadline;
  wire [N*ID_W-1:0] block;
  wire [N*16-1:0] seen_deadline;
  wire [N*3-1:0]  seen_range;
  ss_top #(.N(N), .MODE(MODE), .AHEAD(AHEAD), .PIPE(PIPE), .CNT_W(32), .OBSERVE(1)) dut (
    .clk_i(clk), .rst_i(rst), .load_i(load), .load_id_i(load_id), .load_word_i(load_word),
    .load_data_i(load_data), .run_i(run), .go_i(go), .time_i(START[15:0]), .advance_i(8'd1),
    .min_first_i(1'b0), .serve_all_i(1'b0), .queued_i(queued), .fetch_o(fetch),
    .fetch_id_o(fetch_id), .arrival_i(arrival), .id_valid_o(id_valid), .id_o(id),
    .settled_o(settled), .ready_o(ready), .found_o(found), .decided_o(decided),
    .winner_valid_o(winner_valid), .winner_id_o(winner_id), .winner_deadline_o(winner_deadline),
    .block_valid_o(block_valid), .block_o(block), .now_o(now), .updated_o(updated), .sent_o(sent),
    .late_o(late), .missed_o(missed), .dropped_o(dropped), .violation_o(violation),
    .read_id_i(read_id), .read_i(read_sel), .read_o(read), .seen_deadline_o(seen_deadline),
    .seen_range_o(seen_range)
  );

  // The model: a frame of stream s arrives every `every[s]` slots.
  integer period [0:N-1], every [0:N-1], x0 [0:N-1], y0 [0:N-1], x [0:N-1], y [0:N-1];
  integer taken [0:N-1], deadline [0:N-1], came [0:N-1], fetched [0:N-1];
  integer n_sent [0:N-1], n_late [0:N-1], n_missed [0:N-1], n_dropped [0:N-1], n_viol [0:N-1];
  reg     keep [0:N-1], conserving [0:N-1], head [0:N-1], tardy [0:N-1];
  integer s, t, best, errors, seed, guard, w;

  // The arrival of a stream's frame of this number, and whether it has come.
  function integer at(input integer stream, input integer number);
    at = START + number * every[stream];
  endfunction

  task bring_up(input integer i);
    if (!head[i] && at(i, taken[i]) <= t) begin
      head[i] = 1;
      tardy[i] = 0;
      came[i] = at(i, taken[i]);
      deadline[i] = ((deadline[i] > came[i]) ? deadline[i] : came[i]) + period[i];
      taken[i] = taken[i] + 1;
    end
  endtask

  task miss(input integer i);
    begin
      n_missed[i] = n_missed[i] + 1;
      if (x[i] > 0) begin
        x[i] = x[i] - 1;
        y[i] = y[i] - 1;
        if (y[i] == 0) begin x[i] = x0[i]; y[i] = y0[i]; end
      end else begin
        if (y0[i] > 0) y[i] = y[i] + 1;
        n_viol[i] = n_viol[i] + 1;
      end
      if (keep[i]) begin
        deadline[i] = deadline[i] + period[i];
        tardy[i] = 1;
      end else begin
        n_dropped[i] = n_dropped[i] + 1;
        head[i] = 0;
        bring_up(i);
      end
    end
  endtask

  task serve(input integer i);
    begin
      n_sent[i] = n_sent[i] + 1;
      if (tardy[i]) n_late[i] = n_late[i] + 1;
      if (y[i] > x[i]) y[i] = y[i] - 1;
      else if (x[i] > 0) begin x[i] = x[i] - 1; y[i] = y[i] - 1; end
      if (x[i] == 0 && y[i] == 0) begin x[i] = x0[i]; y[i] = y0[i]; end
      head[i] = 0;
      bring_up(i);
    end
  endtask

  function goes_before(input integer a, input integer b);
    if (deadline[a] != deadline[b]) goes_before = deadline[a] < deadline[b];
    else if (x[a] == 0 && x[b] == 0 && y[a] != y[b]) goes_before = y[a] > y[b];
    else if ((x[a] == 0) != (x[b] == 0)) goes_before = x[a] == 0;
    else if (x[a] * y[b] != x[b] * y[a]) goes_before = x[a] * y[b] < x[b] * y[a];
    else if (x[a] != x[b]) goes_before = x[a] < x[b];
    else if (came[a] != came[b]) goes_before = came[a] < came[b];
    else goes_before = a < b;
  endfunction

  always #5 clk = ~clk;

  // The memory: says what is queued, answers a fetch in the next clock.
  task tick;
    begin
      for (w = 0; w < N; w = w + 1) queued[w] = at(w, fetched[w]) <= t;
      #1;
      if (fetch) begin
        w = fetch_id;
        @(posedge clk) #1;
        arrival = at(w, fetched[w]);
        fetched[w] = fetched[w] + 1;
      end else begin
        @(posedge clk) #1;
      end
    end
  endtask

  task check(input integer which, input integer expected);
    begin
      read_sel = which[2:0];
      #1 if (read !== expected) begin
        errors = errors + 1;
        $display("FAILED: stream %0d, register %0d: %0d, expected %0d", read_id, which, read, expected);
      end
    end
  endtask

  initial begin
    seed = SEED;
    errors = 0;
    t = START - 1;
    for (s = 0; s < N; s = s + 1) begin
      period[s] = 1 + $unsigned($random(seed)) % (2 * N);
      every[s] = 1 + $unsigned($random(seed)) % (2 * N);
      y0[s] = $unsigned($random(seed)) % 6;
      x0[s] = $unsigned($random(seed)) % (y0[s] + 1);
      x[s] = x0[s]; y[s] = y0[s];
      keep[s] = $random(seed);
      conserving[s] = $random(seed);
      head[s] = 0; tardy[s] = 0; taken[s] = 0; fetched[s] = 0; deadline[s] = 0; came[s] = 0;
      n_sent[s] = 0; n_late[s] = 0; n_missed[s] = 0; n_dropped[s] = 0; n_viol[s] = 0;
    end
    repeat (2) tick;
    rst = 0;
    for (s = 0; s < N; s = s + 1) begin
      for (best = 0; best < 4; best = best + 1) begin
        load = 1; load_id = s[ID_W-1:0]; load_word = best[1:0];
        load_data = (best == 0) ? period[s] : (best == 1) ? {x0[s][7:0], y0[s][7:0]} :
                    (best == 2) ? 16'd0 : {11'd0, 3'b100, conserving[s], keep[s]};
        tick;
      end
    end
    load = 0;
    run = 1;
    tick;
    for (t = START; t < START + TICKS; t = t + 1) begin
      for (s = 0; s < N; s = s + 1) begin
        bring_up(s);
        while (head[s] && deadline[s] <= t) miss(s);
      end
      best = -1;
      for (s = 0; s < N; s = s + 1) begin
        if (head[s] && (conserving[s] || deadline[s] - period[s] <= t)) begin
          if (best < 0) best = s;
          else if (goes_before(s, best)) best = s;
        end
      end
      go = 0;
      guard = 0;
      tick;
      while (!ready && guard < 1000) begin tick; guard = guard + 1; end
      if (now !== t[15:0]) begin errors = errors + 1; $display("FAILED: time %0d, expected %0d", now, t[15:0]); end
      go = 1;
      tick;
      go = 0;
      while (!decided && guard < 1000) begin tick; guard = guard + 1; end
      if (guard >= 1000) begin $display("FAILED: stuck at %0d", t); $finish; end
      if (winner_valid !== (best >= 0) || (best >= 0 && winner_id !== best[ID_W-1:0])) begin
        errors = errors + 1;
        $display("FAILED: at %0d winner %0d (%b), expected %0d", t, winner_id, winner_valid, best);
      end
      if (best >= 0) serve(best);
    end
    // The hardware has already expired what is due in the slot after the last.
    for (s = 0; s < N; s = s + 1) begin
      while (head[s] && deadline[s] <= t) miss(s);
    end
    tick;
    for (s = 0; s < N; s = s + 1) begin
      read_id = s[ID_W-1:0];
      check(0, n_sent[s]);
      check(1, n_late[s]);
      check(2, n_missed[s]);
      check(3, n_dropped[s]);
      check(4, n_viol[s]);
      // y' may have stopped at 255; windows are compared where it has not.
      if (!seen_range[3*s+2]) check(5, x[s] * 256 + y[s]);
    end
    if (errors == 0) $display("passed: N=%0d MODE=%0d AHEAD=%0d PIPE=%0d SEED=%0d, %0d decisions", N, MODE, AHEAD, PIPE, SEED, TICKS);
    else $display("FAILED: %0d errors", errors);
    $finish;
  end
endmodule

`default_nettype wire
