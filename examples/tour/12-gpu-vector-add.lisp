; A GPU kernel: each thread adds one pair of numbers.
;
;   lispgpt run examples/tour/12-gpu-vector-add.lisp                        on the CPU, threads and all
;   lispgpt run examples/tour/12-gpu-vector-add.lisp --target rocm:gfx1151  on a GPU (or --target cuda)
;
; prints: sum[0] = 0.0
; prints: sum[255] = 765.0
; prints: 256 of 256 right

(require-dialect arith gpu memref scf)

; x[i] = factor * i
(defn fill [(: x memref<256xf32>) (: factor f32)] -> []
  (scf.for (: 0 index) (: 256 index) (: 1 index)
    (region
      (block [(: i index)]
        (def value (arith.sitofp {:result f32} (arith.index_cast {:result i32} i)))
        (memref.store (arith.mulf factor value) x i)))))

; 4 blocks of 64 threads.  The region is what each thread does; its arguments are the thread's place: block ids, thread
; ids, the grid's size in blocks and the block's size in threads, each along x, y and z.
(defn add [(: x memref<256xf32>) (: y memref<256xf32>) (: sum memref<256xf32>)] -> []
  (gpu.launch (: 4 index) (: 1 index) (: 1 index) (: 64 index) (: 1 index) (: 1 index)
    (region
      (block [(: bx index) (: by index) (: bz index) (: tx index) (: ty index) (: tz index)
              (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)]
        (def i (arith.addi (arith.muli bx sx) tx))
        (memref.store (arith.addf (memref.load x i) (memref.load y i)) sum i)
        (gpu.terminator)))))

; Memory that the GPU may use in place.
(defn shared-memory []
  (let [m (memref.alloc {:result memref<256xf32>})]
    (gpu.host_register (memref.cast {:result memref<*xf32>} m))
    m))

(defn main []
  (def x (shared-memory))
  (def y (shared-memory))
  (def sum (shared-memory))
  (fill x (: 1.0 f32))
  (fill y (: 2.0 f32))
  (add x y sum)
  (println "sum[0] = %.1f" (memref.load sum 0))
  (println "sum[255] = %.1f" (memref.load sum 255))
  (def right
    (scf.for {:result i64} (: 0 index) (: 256 index) (: 1 index) (: 0 i64)
      (region
        (block [(: i index) (: count i64)]
          (def expected (arith.mulf (memref.load x i) 3.0))
          (def equal (arith.cmpf {:predicate "oeq"} (memref.load sum i) expected))
          (scf.yield (arith.addi count (arith.extui {:result i64} equal)))))))
  (println "%ld of 256 right" right))
