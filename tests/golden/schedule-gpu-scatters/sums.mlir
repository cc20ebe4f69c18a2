// pass: schedule-gpu-scatters{each=1 together=2}
// target: cuda:sm_90a
// show: text
#map = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func private @scatter_5x8(%arg0: memref<5x8xf32>, %arg1: memref<40xi32>, %arg2: memref<40x8xf32>) attributes {access = ["read_write", "read", "read"], kernel = "scatter", tied = [0], work = {bytes = 2880 : i64, context = 0 : i64, operations = 320 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict writable : memref<5x8xf32> to tensor<5x8xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<40xi32> to tensor<40xi32>
    %2 = bufferization.to_tensor %arg2 restrict : memref<40x8xf32> to tensor<40x8xf32>
    %c0 = arith.constant 0 : index
    %c40 = arith.constant 40 : index
    %c1 = arith.constant 1 : index
    %3 = scf.for %arg3 = %c0 to %c40 step %c1 iter_args(%arg4 = %0) -> (tensor<5x8xf32>) {
      %extracted = tensor.extract %1[%arg3] : tensor<40xi32>
      %4 = arith.index_cast %extracted : i32 to index
      %extracted_slice = tensor.extract_slice %arg4[%4, 0] [1, 8] [1, 1] : tensor<5x8xf32> to tensor<1x8xf32>
      %extracted_slice_0 = tensor.extract_slice %2[%arg3, 0] [1, 8] [1, 1] : tensor<40x8xf32> to tensor<1x8xf32>
      %5 = tensor.empty() : tensor<1x8xf32>
      %6 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%extracted_slice, %extracted_slice_0 : tensor<1x8xf32>, tensor<1x8xf32>) outs(%5 : tensor<1x8xf32>) {
      ^bb0(%in: f32, %in_1: f32, %out: f32):
        %7 = arith.addf %in, %in_1 : f32
        linalg.yield %7 : f32
      } -> tensor<1x8xf32>
      %inserted_slice = tensor.insert_slice %6 into %arg4[%4, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<5x8xf32>
      scf.yield %inserted_slice : tensor<5x8xf32>
    }
    bufferization.materialize_in_destination %3 in restrict writable %arg0 : (tensor<5x8xf32>, memref<5x8xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @scatter_5x8(%arg0: memref<5x8xf32>, %arg1: memref<40xi32>, %arg2: memref<40x8xf32>) attributes {access = ["read_write", "read", "read"], block = [128, 1, 1], grid = [4, 1, 1], kernel = "scatter", shared_bytes = 0 : i64, tied = [0], work = {bytes = 2880 : i64, context = 0 : i64, operations = 320 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %thread_id_0 = gpu.thread_id x
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 32 : index
    %remui_0 = arith.remui %thread_id_0, %constant_0 : index
    %constant_1 = arith.constant 32 : index
    %divui_0 = arith.divui %thread_id_0, %constant_1 : index
    %constant_2 = arith.constant 4 : index
    %muli_0 = arith.muli %thread_id_0, %constant_2 : index
    %alloca_0 = memref.alloca() : memref<128xi32, #gpu.address_space<workgroup>>
    %alloca_1 = memref.alloca() : memref<4xi32, #gpu.address_space<workgroup>>
    nvvm.griddepcontrol launch_dependents
    nvvm.griddepcontrol wait
    %constant_3 = arith.constant 0 : index
    %constant_4 = arith.constant 40 : index
    %constant_5 = arith.constant 128 : index
    scf.for %arg3 = %constant_3 to %constant_4 step %constant_5 {
      %constant_6 = arith.constant 32 : index
      %muli_1 = arith.muli %divui_0, %constant_6 : index
      %addi_0 = arith.addi %arg3, %muli_1 : index
      %addi_1 = arith.addi %addi_0, %remui_0 : index
      %constant_7 = arith.constant 40 : index
      %cmpi_0 = arith.cmpi ult, %addi_1, %constant_7 : index
      %constant_8 = arith.constant 0 : index
      %select_0 = arith.select %cmpi_0, %addi_1, %constant_8 : index
      %load_0 = memref.load %arg1[%select_0] : memref<40xi32>
      %index_cast_0 = arith.index_cast %load_0 : i32 to index
      %constant_9 = arith.constant 4 : index
      %remui_1 = arith.remui %index_cast_0, %constant_9 : index
      %cmpi_1 = arith.cmpi eq, %remui_1, %block_id_0 : index
      %andi_0 = arith.andi %cmpi_0, %cmpi_1 : i1
      %ballot_0 = gpu.ballot %andi_0 : i32
      %ctpop_0 = math.ctpop %ballot_0 : i32
      %index_cast_1 = arith.index_cast %ctpop_0 : i32 to index
      %constant_10 = arith.constant 0 : index
      %cmpi_2 = arith.cmpi eq, %remui_0, %constant_10 : index
      scf.if %cmpi_2 {
        %index_cast_2 = arith.index_cast %index_cast_1 : index to i32
        memref.store %index_cast_2, %alloca_1[%divui_0] : memref<4xi32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %constant_11 = arith.constant 0 : index
      %load_1 = memref.load %alloca_1[%constant_11] : memref<4xi32, #gpu.address_space<workgroup>>
      %index_cast_3 = arith.index_cast %load_1 : i32 to index
      %constant_12 = arith.constant 1 : index
      %load_2 = memref.load %alloca_1[%constant_12] : memref<4xi32, #gpu.address_space<workgroup>>
      %index_cast_4 = arith.index_cast %load_2 : i32 to index
      %constant_13 = arith.constant 2 : index
      %load_3 = memref.load %alloca_1[%constant_13] : memref<4xi32, #gpu.address_space<workgroup>>
      %index_cast_5 = arith.index_cast %load_3 : i32 to index
      %constant_14 = arith.constant 3 : index
      %load_4 = memref.load %alloca_1[%constant_14] : memref<4xi32, #gpu.address_space<workgroup>>
      %index_cast_6 = arith.index_cast %load_4 : i32 to index
      %constant_15 = arith.constant 0 : index
      %cmpi_3 = arith.cmpi ult, %constant_15, %divui_0 : index
      %constant_16 = arith.constant 0 : index
      %select_1 = arith.select %cmpi_3, %index_cast_3, %constant_16 : index
      %constant_17 = arith.constant 1 : index
      %cmpi_4 = arith.cmpi ult, %constant_17, %divui_0 : index
      %constant_18 = arith.constant 0 : index
      %select_2 = arith.select %cmpi_4, %index_cast_4, %constant_18 : index
      %constant_19 = arith.constant 2 : index
      %cmpi_5 = arith.cmpi ult, %constant_19, %divui_0 : index
      %constant_20 = arith.constant 0 : index
      %select_3 = arith.select %cmpi_5, %index_cast_5, %constant_20 : index
      %constant_21 = arith.constant 3 : index
      %cmpi_6 = arith.cmpi ult, %constant_21, %divui_0 : index
      %constant_22 = arith.constant 0 : index
      %select_4 = arith.select %cmpi_6, %index_cast_6, %constant_22 : index
      %addi_2 = arith.addi %select_1, %select_2 : index
      %addi_3 = arith.addi %addi_2, %select_3 : index
      %addi_4 = arith.addi %addi_3, %select_4 : index
      %constant_23 = arith.constant 1 : i32
      %index_cast_7 = arith.index_cast %remui_0 : index to i32
      %shli_0 = arith.shli %constant_23, %index_cast_7 : i32
      %subi_0 = arith.subi %shli_0, %constant_23 : i32
      %andi_1 = arith.andi %ballot_0, %subi_0 : i32
      %ctpop_1 = math.ctpop %andi_1 : i32
      %index_cast_8 = arith.index_cast %ctpop_1 : i32 to index
      %addi_5 = arith.addi %addi_4, %index_cast_8 : index
      scf.if %andi_0 {
        %index_cast_9 = arith.index_cast %addi_1 : index to i32
        memref.store %index_cast_9, %alloca_0[%addi_5] : memref<128xi32, #gpu.address_space<workgroup>>
      }
      %addi_6 = arith.addi %addi_4, %index_cast_1 : index
      gpu.barrier
      %addi_7 = arith.addi %index_cast_3, %index_cast_4 : index
      %addi_8 = arith.addi %addi_7, %index_cast_5 : index
      %addi_9 = arith.addi %addi_8, %index_cast_6 : index
      %constant_24 = arith.constant 8 : index
      %cmpi_7 = arith.cmpi ult, %muli_0, %constant_24 : index
      scf.if %cmpi_7 {
        %constant_25 = arith.constant 0 : index
        %constant_26 = arith.constant 2 : index
        scf.for %arg4 = %constant_25 to %addi_9 step %constant_26 {
          %constant_27 = arith.constant 8 : index
          %divui_1 = arith.divui %muli_0, %constant_27 : index
          %c-1 = arith.constant -1 : index
          %addi_10 = arith.addi %addi_9, %c-1 : index
          %minui_0 = arith.minui %arg4, %addi_10 : index
          %load_5 = memref.load %alloca_0[%minui_0] : memref<128xi32, #gpu.address_space<workgroup>>
          %index_cast_10 = arith.index_cast %load_5 : i32 to index
          %constant_28 = arith.constant 1 : index
          %addi_11 = arith.addi %arg4, %constant_28 : index
          %minui_1 = arith.minui %addi_11, %addi_10 : index
          %load_6 = memref.load %alloca_0[%minui_1] : memref<128xi32, #gpu.address_space<workgroup>>
          %index_cast_11 = arith.index_cast %load_6 : i32 to index
          %load_7 = memref.load %arg1[%index_cast_10] : memref<40xi32>
          %index_cast_12 = arith.index_cast %load_7 : i32 to index
          %load_8 = vector.load %arg2[%index_cast_10, %muli_0] {alignment = 16 : i64} : memref<40x8xf32>, vector<4xf32>
          %load_9 = memref.load %arg1[%index_cast_11] : memref<40xi32>
          %index_cast_13 = arith.index_cast %load_9 : i32 to index
          %load_10 = vector.load %arg2[%index_cast_11, %muli_0] {alignment = 16 : i64} : memref<40x8xf32>, vector<4xf32>
          %load_11 = vector.load %arg0[%index_cast_12, %muli_0] {alignment = 16 : i64} : memref<5x8xf32>, vector<4xf32>
          %addf_0 = arith.addf %load_11, %load_8 : vector<4xf32>
          %cmpi_8 = arith.cmpi ult, %arg4, %addi_9 : index
          scf.if %cmpi_8 {
            vector.store %addf_0, %arg0[%index_cast_12, %muli_0] {alignment = 16 : i64} : memref<5x8xf32>, vector<4xf32>
          }
          %cmpi_9 = arith.cmpi eq, %index_cast_13, %index_cast_12 : index
          %if_0 = scf.if %cmpi_9 -> (vector<4xf32>) {
            scf.yield %addf_0 : vector<4xf32>
          } else {
            %load_12 = vector.load %arg0[%index_cast_13, %muli_0] {alignment = 16 : i64} : memref<5x8xf32>, vector<4xf32>
            scf.yield %load_12 : vector<4xf32>
          }
          %addf_1 = arith.addf %if_0, %load_10 : vector<4xf32>
          %constant_29 = arith.constant 1 : index
          %addi_12 = arith.addi %arg4, %constant_29 : index
          %cmpi_10 = arith.cmpi ult, %addi_12, %addi_9 : index
          scf.if %cmpi_10 {
            vector.store %addf_1, %arg0[%index_cast_13, %muli_0] {alignment = 16 : i64} : memref<5x8xf32>, vector<4xf32>
          }
        }
      }
    }
    return
  }
}
