; The short way to write GPU kernels: `kernel`, `launch`, and the library's kernels.
;
;   lispgpt run examples/tour/16-gpu-kernels.lisp
;   lispgpt run examples/tour/16-gpu-kernels.lisp --target rocm:gfx1151
;
; prints: reversed: 63 62 … 1 0
; prints: softmax of 0 1 … 63: the last is 0.6321, the one before 0.2325
; prints: rows sum to 1.0000 and 1.0000

(require-dialect arith gpu memref scf)
(require kernels)                        ; row-softmax, row-layer-norm, tiled products: lispgpt/lib/kernels.lisp

(def row memref<64xf32>)
(def rows memref<2x64xf32>)

; A kernel is inlined where it is launched, so it takes whatever it is launched with, numbers too.  (block-id x),
; (thread-id y) … are the thread's place; `shared` is memory of its block; + and * work on whatever they are given.
(kernel reverse [in out size]
  (let [half (/ size 2)
        tile (shared [half] f32)
        lane (thread-id x)
        block (block-id x)]
    (memref.store (memref.load in (+ (* block half) lane)) tile lane)
    (gpu.barrier)
    (memref.store (memref.load tile (- (- half 1) lane)) out (+ (* (- 1 block) half) lane))))

(defn host-memory [type unranked]
  (let [m (memref.alloc {:result type})]
    (gpu.host_register (memref.cast {:result unranked} m))
    m))

(defn number [i]
  (arith.sitofp {:result f32} (arith.index_cast {:result i32} i)))

(defn main []
  (def in (host-memory row memref<*xf32>))
  (def out (host-memory row memref<*xf32>))
  (def x (host-memory rows memref<*xf32>))
  (def y (host-memory rows memref<*xf32>))
  (scf.for (: 0 index) (: 64 index) (: 1 index)
    (region
      (block [(: i index)]
        (memref.store (number i) in i)
        (memref.store (number i) x 0 i)
        (memref.store (* 2.0 (number i)) x 1 i))))
  (launch reverse [2] [32] in out 64)    ; 2 blocks of 32 threads
  (println "reversed: %.0f %.0f … %.0f %.0f"
           (memref.load out 0) (memref.load out 1) (memref.load out 62) (memref.load out 63))
  (launch row-softmax [2] [(capability subgroup-size)] x y 64)
  (println "softmax of 0 1 … 63: the last is %.4f, the one before %.4f" (memref.load y 0 63) (memref.load y 0 62))
  (def [first second]
    (scf.for {:result [f32 f32]} (: 0 index) (: 64 index) (: 1 index) (: 0.0 f32) (: 0.0 f32)
      (region
        (block [(: i index) (: a f32) (: b f32)]
          (scf.yield (+ a (memref.load y 0 i)) (+ b (memref.load y 1 i)))))))
  (println "rows sum to %.4f and %.4f" first second))
