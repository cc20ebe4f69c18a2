; GPT-2 124M's sizes, and short names for loops (see gpt2_explicit.lisp).

(require-dialect arith gpu scf)

(def positions 64)
(def layers 12)
(def heads 12)
(def width 768)
(def vocab 50257)
(def padded-vocab 50304)

(def activations memref<64x768xf32>)
(def hidden memref<64x3072xf32>)
(def by-head memref<12x64x64xf32>)
(def vector memref<768xf32, strided<[1], offset: ?>>)

; A loop on the host over [0, count).
(defmacro each [[i count] & body]
  `(scf.for (: 0 index) ~count (: 1 index) (region (block [(: ~i index)] ~@body))))

; Independent iterations, which a GPU runs side by side.
(defmacro parallel [[i rows j columns] & body]
  `(scf.parallel {:operandSegmentSizes array<i32: 2, 2, 2, 0>}
     (: 0 index) (: 0 index) (: ~rows index) (: ~columns index) (: 1 index) (: 1 index)
     (region (block [(: ~i index) (: ~j index)] ~@body (scf.reduce)))))

; `blocks` blocks of one subgroup of 32 threads.
(defmacro rows-by-subgroups [[row lane blocks] & body]
  `(gpu.launch (: ~blocks index) (: 1 index) (: 1 index) (: 32 index) (: 1 index) (: 1 index)
     (region
       (block [(: ~row index) (: by index) (: bz index) (: ~lane index) (: ty index) (: tz index)
               (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)]
         ~@body
         (gpu.terminator)))))

; In round k every lane takes in the value of the lane whose number differs in bit k.
(defn over-subgroup [combine value]
  (fold (fn [sum distance]
          (let [[other valid] (gpu.shuffle {:mode "#gpu<shuffle_mode xor>"} sum (: distance i32) (: 32 i32))]
            (combine sum other)))
        value [16 8 4 2 1]))

; combine over start and (term i) for every 32nd i from the lane's own, of `count` in all.
(defn lane-sum [combine start count lane term]
  (scf.for {:result f32} (: 0 index) (: (/ count 32) index) (: 1 index) start
    (region
      (block [(: step index) (: sum f32)]
        (scf.yield (combine sum (term (arith.addi (arith.muli step 32) lane))))))))

(defn add [a b] (arith.addf a b))
(defn largest [a b] (arith.maximumf a b))
