// Is the order of ss_order transitive? All triples of eligible streams with small fields are tried: two
// deadlines, every window x'/y' with y' <= 4 and three more at the ends of 8 bits, two arrivals; ids
// break the last ties. The deadlines and arrivals lie less than half of the circle apart, as they
// must: three times that lie a third of the circle apart have no order at all.
`timescale 1ns / 1ns
`default_nettype none

module tb_transitive;
  localparam WINDOWS = 18, ITEMS = WINDOWS * 4;
  reg  [53:0]  item [0:ITEMS-1];
  reg          ahead [0:ITEMS*ITEMS-1];
  reg  [53:0]  a, b;
  wire         a_first;
  integer      i, j, k, n, x, y, wrong, one_sided;
  ss_order #(.ID_W(5)) u_order (
    .clk_i(1'b0), .a_i(a), .b_i(b), .min_first_i(1'b0), .a_first_o(a_first)
  );

  task add(input [7:0] x_new, input [7:0] y_new);
    integer d, r;
    for (d = 0; d < 2; d = d + 1) begin
      for (r = 0; r < 2; r = r + 1) begin
        // Both times wrap on the way from the first value to the second.
        item[n] = {1'b1, d[0] ? 16'h0003 : 16'hfffe, x_new, y_new, r[0] ? 16'h0001 : 16'hfff0, n[4:0]};
        n = n + 1;
      end
    end
  endtask

  initial begin
    n = 0;
    for (y = 0; y <= 4; y = y + 1) begin
      for (x = 0; x <= y; x = x + 1) add(x[7:0], y[7:0]);
    end
    add(8'd254, 8'd255);
    add(8'd253, 8'd254);
    add(8'd255, 8'd255);
    wrong = 0;
    one_sided = 0;
    for (i = 0; i < ITEMS; i = i + 1) begin
      for (j = 0; j < ITEMS; j = j + 1) begin
        a = item[i];
        b = item[j];
        // Ids come round after 32 items: among those that repeat, the place in the list decides.
        #1 ahead[i*ITEMS+j] = a_first;
        if (i[4:0] == j[4:0] && a[53:5] == b[53:5]) ahead[i*ITEMS+j] = i < j;
      end
    end
    for (i = 0; i < ITEMS; i = i + 1) begin
      for (j = 0; j < ITEMS; j = j + 1) begin
        if (i != j && ahead[i*ITEMS+j] == ahead[j*ITEMS+i]) one_sided = one_sided + 1;
        for (k = 0; k < ITEMS; k = k + 1) begin
          if (i != j && j != k && i != k && ahead[i*ITEMS+j] && ahead[j*ITEMS+k] &&
              !ahead[i*ITEMS+k]) wrong = wrong + 1;
        end
      end
    end
    if (wrong == 0 && one_sided == 0) $display("passed: no cycle among %0d triples", ITEMS * ITEMS * ITEMS);
    else $display("FAILED: %0d triples and %0d pairs are inconsistent", wrong, one_sided);
    $finish;
  end
endmodule

`default_nettype wire
