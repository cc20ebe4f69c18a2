; Weights in blocks, as llama.cpp lays them out: numbers of a few bits that share a scale.  Each function takes blocks as
; bytes, [rows blocks bytes], and gives the numbers that they stand for, [rows columns] in f32.  They are computed where
; they are read.
(require-dialect arith)

; ---- parts of a block

(defn byte [v] (arith.extui {:result i32} v))

(defn real [v] (arith.uitofp {:result f32} v))

; `count` bytes of each block, from `first` on
(defn bytes-of [blocks first count]
  (let [[rows n size] (shape blocks)]
    (slice blocks [0 0 first] [rows n count])))

; the f16 that stands at byte `first` of each block, [rows blocks]
(defn half-at [blocks first]
  (let [[rows n size] (shape blocks)
        part (fn [i] (slice blocks [0 0 (+ first i)] [rows n nil]))
        [low high] [(part 0) (part 1)]]
    (tensor [r rows b n]
      (let [bits (arith.ori (byte (at low r b)) (arith.shli (byte (at high r b)) (: 8 i32)))]
        (arith.extf {:result f32} (arith.bitcast {:result f16} (arith.trunci {:result i16} bits)))))))

; ---- Q8_0: 32 signed bytes times a scale

(defn q8_0 [blocks]
  (let [[rows n size] (shape blocks)
        [scale numbers] [(half-at blocks 0) (bytes-of blocks 2 32)]]
    (reshape
      (tensor [r rows b n i 32]
        (* (arith.sitofp {:result f32} (at numbers r b i)) (at scale r b)))
      [rows (* 32 n)])))

; the f32 that stands first in each block, [rows blocks]
(defn real-of [blocks]
  (let [[rows n size] (shape blocks)
        [a b c d] (map (fn [i] (slice blocks [0 0 i] [rows n nil])) [0 1 2 3])
        join (fn [bits more places] (arith.ori bits (arith.shli (byte more) places)))]
    (tensor [r rows k n]
      (let [at (fn [x] (at x r k))
            bits (join (join (join (byte (at a)) (at b) (: 8 i32)) (at c) (: 16 i32)) (at d) (: 24 i32))]
        (arith.bitcast {:result f32} bits)))))

; ---- int8: 128 signed bytes times a scale in f32

(defn int8 [blocks]
  (let [[rows n size] (shape blocks)
        [scale numbers] [(real-of blocks) (bytes-of blocks 4 128)]]
    (reshape
      (tensor [r rows k n i 128]
        (* (arith.sitofp {:result f32} (at numbers r k i)) (at scale r k)))
      [rows (* 128 n)])))

; ---- fp8: 128 floats of 8 bits, E4M3, times a scale in f32

; In f16, whose exponents are larger by 8, it is a 256th of what it stands for.
(defn e4m3 [v]
  (let [bits (arith.extui {:result i16} v)
        sign (arith.shli (arith.andi bits (: 128 i16)) (: 8 i16))
        size (arith.shli (arith.andi bits (: 127 i16)) (: 7 i16))]
    (* 256.0 (arith.extf {:result f32} (arith.bitcast {:result f16} (arith.ori sign size))))))

(defn fp8 [blocks]
  (let [[rows n size] (shape blocks)
        [scale numbers] [(real-of blocks) (bytes-of blocks 4 128)]]
    (reshape
      (tensor [r rows k n i 128]
        (* (e4m3 (at numbers r k i)) (at scale r k)))
      [rows (* 128 n)])))

; ---- Q4_0: 32 numbers from -8 to 7 times a scale; a byte has the i-th in its lower half and the (i + 16)-th in its upper

(defn q4_0 [blocks]
  (let [[rows n size] (shape blocks)
        [scale numbers] [(half-at blocks 0) (bytes-of blocks 2 16)]]
    (reshape
      (tensor [r rows b n upper 2 i 16]
        (let [four (arith.andi (arith.shrui (byte (at numbers r b i)) (* 4 (cast upper i32))) (: 15 i32))]
          (* (arith.sitofp {:result f32} (arith.subi four (: 8 i32))) (at scale r b))))
      [rows (* 32 n)])))

; ---- Q4_K: eight times 32 numbers from 0 to 15, each times a scale less a minimum of six bits, which have a scale each;
; of every 32 bytes the lower halves are the numbers of one, and the upper halves of the next

; the s-th of the eight six-bit numbers: the lower six bits of four bytes, then their upper two above the `half` of others
(defn six-bits [early late high s]
  (let [low (arith.andi early (: 63 i32))
        joint (arith.ori late (arith.shli (arith.shrui high (: 6 i32)) (: 4 i32)))]
    (real (select (< s 4) low joint))))

(defn q4_k [blocks]
  (let [[rows n size] (shape blocks)
        [scale lowest] [(half-at blocks 0) (half-at blocks 2)]
        [sixes numbers] [(bytes-of blocks 4 12) (reshape (bytes-of blocks 16 128) [rows n 4 32])]
        six (fn [r b i] (byte (at sixes r b (cast i index))))
        scales (tensor [r rows b n s 8]
                 (let [i (cast s i32)
                       late (six r b (min 11 (+ i 4)))
                       high (six r b (max 0 (- i 4)))]
                   (* (at scale r b) (six-bits (six r b i) (arith.andi late (: 15 i32)) high i))))
        minima (tensor [r rows b n s 8]
                 (let [i (cast s i32)
                       late (six r b (min 11 (+ i 4)))]
                   (* (at lowest r b) (six-bits late (arith.shrui late (: 4 i32)) (six r b i) i))))
        of-part (fn [x] (reshape x [rows n 4 2]))
        [scales minima] [(of-part scales) (of-part minima)]]
    (reshape
      (tensor [r rows b n j 4 upper 2 i 32]
        (let [four (arith.andi (arith.shrui (byte (at numbers r b j i)) (* 4 (cast upper i32))) (: 15 i32))]
          (- (* (real four) (at scales r b j upper)) (at minima r b j upper))))
      [rows (* 256 n)])))
