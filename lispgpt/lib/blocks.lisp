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

; ---- fp8: floats of 8 bits, E4M3, times a scale in f32: 128 of them in weights, a whole row in states

; In f16, whose exponents are larger by 8, it is a 256th of what it stands for.
(defn e4m3 [v]
  (let [bits (arith.extui {:result i16} v)
        sign (arith.shli (arith.andi bits (: 128 i16)) (: 8 i16))
        size (arith.shli (arith.andi bits (: 127 i16)) (: 7 i16))]
    (* 256.0 (arith.extf {:result f32} (arith.bitcast {:result f16} (arith.ori sign size))))))

(defn fp8 [blocks]
  (let [[rows n size] (shape blocks)
        each (- size 4)
        [scale numbers] [(real-of blocks) (bytes-of blocks 4 each)]]
    (reshape
      (tensor [r rows k n i each]
        (* (e4m3 (at numbers r k i)) (at scale r k)))
      [rows (* each n)])))

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

; of blocks that start with two f16 and twelve bytes: [scales minima], of each two neighbouring parts, [rows blocks 4 2]
(defn scales-and-minima [blocks]
  (let [[rows n size] (shape blocks)
        [scale lowest] [(half-at blocks 0) (half-at blocks 2)]
        sixes (bytes-of blocks 4 12)
        six (fn [r b i] (byte (at sixes r b (cast i index))))
        scales (tensor [r rows b n s 8]
                 (let [i (cast s i32)
                       late (six r b (min 11 (+ i 4)))
                       high (six r b (max 0 (- i 4)))]
                   (* (at scale r b) (six-bits (six r b i) (arith.andi late (: 15 i32)) high i))))
        minima (tensor [r rows b n s 8]
                 (let [i (cast s i32)
                       late (six r b (min 11 (+ i 4)))]
                   (* (at lowest r b) (six-bits late (arith.shrui late (: 4 i32)) (six r b i) i))))]
    (map (fn [x] (reshape x [rows n 4 2])) [scales minima])))

; `count` bits of a byte, from the place-th on
(defn bits-of [byte place count]
  (arith.andi (arith.shrui byte place) (: (- (pow 2 count) 1) i32)))

(defn q4_k [blocks]
  (let [[rows n size] (shape blocks)
        [scales minima] (scales-and-minima blocks)
        numbers (reshape (bytes-of blocks 16 128) [rows n 4 32])]
    (reshape
      (tensor [r rows b n j 4 upper 2 i 32]
        (let [four (arith.andi (arith.shrui (byte (at numbers r b j i)) (* 4 (cast upper i32))) (: 15 i32))]
          (- (* (real four) (at scales r b j upper)) (at minima r b j upper))))
      [rows (* 256 n)])))

; ---- Q5_K: as Q4_K, of numbers from 0 to 31; the fifth bit of the i-th number of the s-th part is the s-th one of the
; i-th of 32 bytes

(defn q5_k [blocks]
  (let [[rows n size] (shape blocks)
        [scales minima] (scales-and-minima blocks)
        [fifths numbers] [(bytes-of blocks 16 32) (reshape (bytes-of blocks 48 128) [rows n 4 32])]]
    (reshape
      (tensor [r rows b n j 4 upper 2 i 32]
        (let [half (cast upper i32)
              low (bits-of (byte (at numbers r b j i)) (* 4 half) 4)
              high (bits-of (byte (at fifths r b i)) (+ (* 2 (cast j i32)) half) 1)
              number (arith.ori low (arith.shli high (: 4 i32)))]
          (- (* (real number) (at scales r b j upper)) (at minima r b j upper))))
      [rows (* 256 n)])))

; ---- Q6_K: sixteen times 16 numbers from -32 to 31, each times a signed byte, and all times an f16 at the end.  Of each
; 128, the lower four bits of the first 64 are the lower halves of 64 bytes, and of the others the upper ones; the upper
; two bits of each 32 are two of each of 32 bytes

(defn sixes [blocks lower upper scale-bytes]
  (let [[rows n size] (shape blocks)
        part (fn [first sizes] (reshape (bytes-of blocks first (fold * 1 sizes)) (concat [rows n] sizes)))
        [low high scales] [(part lower [2 2 2 16]) (part upper [2 2 16]) (part scale-bytes [2 2 2 2])]]
    (fn [scale r b j upper odd s i]
      (let [half (cast upper i32)
            four (bits-of (byte (at low r b j odd s i)) (* 4 half) 4)
            two (bits-of (byte (at high r b j s i)) (+ (* 4 half) (* 2 (cast odd i32))) 2)
            number (arith.subi (arith.ori four (arith.shli two (: 4 i32))) (: 32 i32))
            own (arith.sitofp {:result f32} (at scales r b j upper odd s))]
        (* (arith.sitofp {:result f32} number) (* own (at scale r b)))))))

(defn q6_k [blocks]
  (let [[rows n size] (shape blocks)
        [value scale] [(sixes blocks 0 128 192) (half-at blocks 208)]]
    (reshape
      (tensor [r rows b n j 2 upper 2 odd 2 s 2 i 16] (value scale r b j upper odd s i))
      [rows (* 256 n)])))

; ---- k_mix: what Q4_K, Q5_K and Q6_K say, for matrices that are of several of them: as Q6_K, each 32 less a byte times
; an f16 that all of them share

(defn k_mix [blocks]
  (let [[rows n size] (shape blocks)
        [value scale lowest] [(sixes blocks 28 156 12) (half-at blocks 0) (half-at blocks 2)]
        minima (reshape (bytes-of blocks 4 8) [rows n 2 2 2])]
    (reshape
      (tensor [r rows b n j 2 upper 2 odd 2 s 2 i 16]
        (- (value scale r b j upper odd s i) (* (real (byte (at minima r b j upper odd))) (at lowest r b))))
      [rows (* 256 n)])))

; ---- IQ4_XS: eight times 32 numbers of a table, each times six bits less 32, and all times an f16: of the eight, the
; upper two bits are in two bytes, and the lower four in four.  Of every 16 bytes the lower halves are the first numbers'
; places in the table, and the upper ones the others'

; The table's numbers, each more by 128, as bytes of two words: eight from -127 to -10, and eight from 1 to 113.
(defn iq4 [place]
  (let [shift (* 8 (arith.extui {:result i64} (arith.andi place (: 7 i32))))
        half (select (< place 8) (: 8532735038950545409 i64) (: -1019566456647873151 i64))
        found (arith.trunci {:result i32} (arith.andi (arith.shrui half shift) (: 255 i64)))]
    (arith.sitofp {:result f32} (arith.subi found (: 128 i32)))))

(defn iq4_xs [blocks]
  (let [[rows n size] (shape blocks)
        [scale upper lower] [(half-at blocks 0) (bytes-of blocks 2 2) (bytes-of blocks 4 4)]
        numbers (reshape (bytes-of blocks 8 128) [rows n 8 16])
        scales (tensor [r rows b n s 8]
                 (let [i (cast s i32)
                       four (bits-of (byte (at lower r b (quot s 2))) (* 4 (arith.andi i (: 1 i32))) 4)
                       two (bits-of (byte (at upper r b (quot s 4))) (* 2 (arith.andi i (: 3 i32))) 2)
                       six (arith.subi (arith.ori four (arith.shli two (: 4 i32))) (: 32 i32))]
                   (* (at scale r b) (arith.sitofp {:result f32} six))))]
    (reshape
      (tensor [r rows b n s 8 half 2 i 16]
        (* (iq4 (bits-of (byte (at numbers r b s i)) (* 4 (cast half i32)) 4)) (at scales r b s)))
      [rows (* 256 n)])))

; ---- MXFP4: 32 floats of 4 bits, E2M1, times a power of two, whose exponent stands first; a byte has the i-th in its
; lower half and the (i + 16)-th in its upper.  Rouhani et al., "Microscaling Data Formats for Deep Learning", 2023

; twice the float, a whole number
(defn e2m1 [bits]
  (let [shift (* 8 (arith.extui {:result i64} (arith.andi bits (: 7 i32))))
        size (arith.sitofp {:result f32} (arith.andi (arith.shrui (: 866949542568919296 i64) shift) (: 15 i64)))]
    (select (< bits 8) size (- 0.0 size))))

; 2^(e - 128), half of what the exponent says
(defn half-power [e]
  (let [small (arith.shli (: 2097152 i32) (arith.andi e (: 1 i32)))
        bits (select (< e 2) small (arith.shli (arith.subi e (: 1 i32)) (: 23 i32)))]
    (arith.bitcast {:result f32} bits)))

(defn mxfp4 [blocks]
  (let [[rows n size] (shape blocks)
        [powers numbers] [(slice blocks [0 0 0] [rows n nil]) (bytes-of blocks 1 16)]]
    (reshape
      (tensor [r rows b n upper 2 i 16]
        (* (e2m1 (bits-of (byte (at numbers r b i)) (* 4 (cast upper i32)) 4)) (half-power (byte (at powers r b)))))
      [rows (* 32 n)])))
