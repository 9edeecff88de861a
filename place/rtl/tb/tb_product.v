// ss_product against `*`, on all 65,536 pairs.
`timescale 1ns / 1ns
`default_nettype none

module tb_product;
  reg  [8:0]  x, y;
  wire [15:0] p;
  integer     wrong;
  ss_product u_product (.x_i(x[7:0]), .y_i(y[7:0]), .p_o(p));
  initial begin
    wrong = 0;
    for (x = 0; x < 256; x = x + 1) begin
      for (y = 0; y < 256; y = y + 1) begin
        #1 if (p != x[7:0] * y[7:0]) wrong = wrong + 1;
      end
    end
    if (wrong == 0) $display("passed: the product is right for all 65536 pairs");
    else            $display("FAILED: %0d products are wrong", wrong);
    $finish;
  end
endmodule

`default_nettype wire
