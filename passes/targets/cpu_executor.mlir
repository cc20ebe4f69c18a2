// How the threads of a CPU session run a list of launches: every thread runs @execute on the same list, takes blocks
// from each launch's counter until none is left, and waits for the others before the next launch.
//
// A launch is {kernel, arguments, blocks}, 24 bytes.  The pool is an array of i64:
//   [0] generation: one more for every list     [8] stop         [16] address of the launches   [17] their number
//   [18] threads    [24] arrivals at barriers   [32] workers done with the list   [40] address of one counter (a cache
//   line of 128 bytes) per launch.  Distances keep what different threads write on different cache lines.

module {
  llvm.func @sched_yield() -> i32
  llvm.func @usleep(i32) -> i32

  llvm.func internal @word(%pool: !llvm.ptr, %index: i64) -> !llvm.ptr {
    %address = llvm.getelementptr %pool[%index] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    llvm.return %address : !llvm.ptr
  }

  // Waits until the word is at least %least: spins, then yields the processor, then sleeps.
  llvm.func internal @wait_for(%word: !llvm.ptr, %least: i64) {
    %zero = llvm.mlir.constant(0 : i64) : i64
    %one = llvm.mlir.constant(1 : i64) : i64
    %spins = llvm.mlir.constant(1000 : i64) : i64
    %yields = llvm.mlir.constant(5000 : i64) : i64
    %nap = llvm.mlir.constant(100 : i32) : i32
    llvm.br ^check(%zero : i64)
  ^check(%tries: i64):
    %now = llvm.load %word atomic acquire {alignment = 8 : i64} : !llvm.ptr -> i64
    %reached = llvm.icmp "sge" %now, %least : i64
    llvm.cond_br %reached, ^done, ^again
  ^again:
    %next = llvm.add %tries, %one : i64
    %spin = llvm.icmp "slt" %tries, %spins : i64
    llvm.cond_br %spin, ^pause, ^slow
  ^pause:
    llvm.call_intrinsic "llvm.x86.sse2.pause"() : () -> ()
    llvm.br ^check(%next : i64)
  ^slow:
    %yield = llvm.icmp "slt" %tries, %yields : i64
    llvm.cond_br %yield, ^give_way, ^sleep
  ^give_way:
    %0 = llvm.call @sched_yield() : () -> i32
    llvm.br ^check(%next : i64)
  ^sleep:
    %1 = llvm.call @usleep(%nap) : (i32) -> i32
    llvm.br ^check(%yields : i64)
  ^done:
    llvm.return
  }

  llvm.func internal @execute(%pool: !llvm.ptr) {
    %zero = llvm.mlir.constant(0 : i64) : i64
    %one = llvm.mlir.constant(1 : i64) : i64
    %c16 = llvm.mlir.constant(16 : i64) : i64
    %c17 = llvm.mlir.constant(17 : i64) : i64
    %c18 = llvm.mlir.constant(18 : i64) : i64
    %c24 = llvm.mlir.constant(24 : i64) : i64
    %c40 = llvm.mlir.constant(40 : i64) : i64
    %p_launches = llvm.call @word(%pool, %c16) : (!llvm.ptr, i64) -> !llvm.ptr
    %launches = llvm.load %p_launches : !llvm.ptr -> !llvm.ptr
    %p_count = llvm.call @word(%pool, %c17) : (!llvm.ptr, i64) -> !llvm.ptr
    %count = llvm.load %p_count : !llvm.ptr -> i64
    %p_threads = llvm.call @word(%pool, %c18) : (!llvm.ptr, i64) -> !llvm.ptr
    %threads = llvm.load %p_threads : !llvm.ptr -> i64
    %arrivals = llvm.call @word(%pool, %c24) : (!llvm.ptr, i64) -> !llvm.ptr
    %p_counters = llvm.call @word(%pool, %c40) : (!llvm.ptr, i64) -> !llvm.ptr
    %counters = llvm.load %p_counters : !llvm.ptr -> !llvm.ptr
    llvm.br ^launch(%zero, %threads : i64, i64)
  ^launch(%i: i64, %all: i64):
    %more = llvm.icmp "slt" %i, %count : i64
    llvm.cond_br %more, ^begin, ^done
  ^begin:
    %p_kernel = llvm.getelementptr %launches[%i, 0] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.struct<(ptr, ptr, i64)>
    %p_arguments = llvm.getelementptr %launches[%i, 1] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.struct<(ptr, ptr, i64)>
    %p_blocks = llvm.getelementptr %launches[%i, 2] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.struct<(ptr, ptr, i64)>
    %kernel = llvm.load %p_kernel : !llvm.ptr -> !llvm.ptr
    %arguments = llvm.load %p_arguments : !llvm.ptr -> !llvm.ptr
    %blocks = llvm.load %p_blocks : !llvm.ptr -> i64
    %line = llvm.mul %i, %c16 : i64
    %counter = llvm.call @word(%counters, %line) : (!llvm.ptr, i64) -> !llvm.ptr
    llvm.br ^take
  ^take:
    // A share of what is left, so that a thread's blocks (and what they read) follow each other in memory.
    %taken = llvm.load %counter atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
    %left = llvm.sub %blocks, %taken : i64
    %shares = llvm.shl %threads, %one : i64
    %part = llvm.sdiv %left, %shares : i64
    %share = llvm.intr.smax(%part, %one) : (i64, i64) -> i64
    %first = llvm.atomicrmw add %counter, %share monotonic : !llvm.ptr, i64
    %sum = llvm.add %first, %share : i64
    %end = llvm.intr.smin(%sum, %blocks) : (i64, i64) -> i64
    %some = llvm.icmp "slt" %first, %blocks : i64
    llvm.cond_br %some, ^run(%first : i64), ^barrier
  ^run(%block: i64):
    llvm.call %kernel(%arguments, %block) : !llvm.ptr, (!llvm.ptr, i64) -> ()
    %next_block = llvm.add %block, %one : i64
    %again = llvm.icmp "slt" %next_block, %end : i64
    llvm.cond_br %again, ^run(%next_block : i64), ^take
  ^barrier:
    %before = llvm.atomicrmw add %arrivals, %one acq_rel : !llvm.ptr, i64
    llvm.call @wait_for(%arrivals, %all) : (!llvm.ptr, i64) -> ()
    %next = llvm.add %i, %one : i64
    %next_all = llvm.add %all, %threads : i64
    llvm.br ^launch(%next, %next_all : i64, i64)
  ^done:
    llvm.return
  }

  // Runs the pool's list on the calling thread and on the workers; returns when all launches are done.
  llvm.func @lispgpt_run(%pool: !llvm.ptr) {
    %zero = llvm.mlir.constant(0 : i64) : i64
    %one = llvm.mlir.constant(1 : i64) : i64
    %c7 = llvm.mlir.constant(7 : i64) : i64
    %c17 = llvm.mlir.constant(17 : i64) : i64
    %c18 = llvm.mlir.constant(18 : i64) : i64
    %c24 = llvm.mlir.constant(24 : i64) : i64
    %c32 = llvm.mlir.constant(32 : i64) : i64
    %c40 = llvm.mlir.constant(40 : i64) : i64
    %byte = llvm.mlir.constant(0 : i8) : i8
    %p_count = llvm.call @word(%pool, %c17) : (!llvm.ptr, i64) -> !llvm.ptr
    %count = llvm.load %p_count : !llvm.ptr -> i64
    %p_threads = llvm.call @word(%pool, %c18) : (!llvm.ptr, i64) -> !llvm.ptr
    %threads = llvm.load %p_threads : !llvm.ptr -> i64
    %workers = llvm.sub %threads, %one : i64
    %finished = llvm.call @word(%pool, %c32) : (!llvm.ptr, i64) -> !llvm.ptr
    llvm.call @wait_for(%finished, %workers) : (!llvm.ptr, i64) -> ()
    %arrivals = llvm.call @word(%pool, %c24) : (!llvm.ptr, i64) -> !llvm.ptr
    %p_counters = llvm.call @word(%pool, %c40) : (!llvm.ptr, i64) -> !llvm.ptr
    %counters = llvm.load %p_counters : !llvm.ptr -> !llvm.ptr
    %bytes = llvm.shl %count, %c7 : i64
    "llvm.intr.memset"(%counters, %byte, %bytes) <{isVolatile = false}> : (!llvm.ptr, i8, i64) -> ()
    llvm.store %zero, %arrivals : i64, !llvm.ptr
    llvm.store %zero, %finished : i64, !llvm.ptr
    %0 = llvm.atomicrmw add %pool, %one release : !llvm.ptr, i64
    llvm.call @execute(%pool) : (!llvm.ptr) -> ()
    llvm.return
  }

  // A worker's whole life: wait for a list, run it, say so; ends when `stop` is set before a new generation.
  llvm.func @lispgpt_worker(%pool: !llvm.ptr) {
    %one = llvm.mlir.constant(1 : i64) : i64
    %zero = llvm.mlir.constant(0 : i64) : i64
    %c8 = llvm.mlir.constant(8 : i64) : i64
    %c32 = llvm.mlir.constant(32 : i64) : i64
    %p_stop = llvm.call @word(%pool, %c8) : (!llvm.ptr, i64) -> !llvm.ptr
    %finished = llvm.call @word(%pool, %c32) : (!llvm.ptr, i64) -> !llvm.ptr
    llvm.br ^wait(%one : i64)
  ^wait(%generation: i64):
    llvm.call @wait_for(%pool, %generation) : (!llvm.ptr, i64) -> ()
    %stop = llvm.load %p_stop : !llvm.ptr -> i64
    %ended = llvm.icmp "ne" %stop, %zero : i64
    llvm.cond_br %ended, ^done, ^work
  ^work:
    llvm.call @execute(%pool) : (!llvm.ptr) -> ()
    %0 = llvm.atomicrmw add %finished, %one release : !llvm.ptr, i64
    %next = llvm.add %generation, %one : i64
    llvm.br ^wait(%next : i64)
  ^done:
    llvm.return
  }
}
