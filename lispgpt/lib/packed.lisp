; Rows of states in few bits, each packed by itself when it is written: x is [rows row], packed rows are bytes [rows bytes].
; What they stand for is in bf16, [rows row], of [rows blocks bytes].
(require-dialect arith math)
(require blocks)

; (word r), of which `first` bytes stand ahead of the lowest of (number r i) for each of `count`, both of i32 -> bytes
; [rows first+count]
(defn bytes-behind [rows word first number count]
  (tensor [r rows c (+ first count)]
    (let [behind (>= c first)
          byte (arith.shrui (word r) (* 8 (cast (select behind 0 c) i32)))
          own (number r (select behind (- c first) 0))]
      (arith.trunci {:result i8} (select behind own byte)))))

; the bits of x without their signs, whose order is that of sizes, NaN above all
(defn sizes-of [x]
  (let [[n size] (shape x)]
    (tensor [r n i size] (arith.bitcast {:result i32} (abs (cast (at x r i) f32))))))

; ---- fp8: floats of 8 bits, E4M3, times a power of two, so that bf16 has what they stand for; the largest of a row is
; from 224 to 448

; the bits of a row's scale in f32, a NaN where a number is none or infinite
(defn power-for [largest]
  (let [exponent (arith.subi (arith.shrui (arith.addi largest (: 2097151 i32)) (: 23 i32)) (: 8 i32))]
    (select (< largest (: 2139095040 i32)) (arith.shli (max exponent (: 16 i32)) (: 23 i32)) (: 2143289344 i32))))

; y, of at most 448 -> the nearest E4M3's bits; of halves the even one
(defn nearest-e4m3 [y]
  (let [bits (arith.bitcast {:result i32} y)
        size (arith.andi bits (: 2147483647 i32))
        odd (arith.andi (arith.shrui size (: 20 i32)) (: 1 i32))
        usual (arith.subi (arith.shrui (arith.addi (arith.addi size (: 524287 i32)) odd) (: 20 i32)) (: 960 i32))
        steps (arith.bitcast {:result i32} (+ 8388608.0 (* 512.0 (arith.bitcast {:result f32} size))))
        small (arith.andi steps (: 15 i32))
        sign (arith.andi (arith.shrui bits (: 24 i32)) (: 128 i32))]
    (arith.ori (select (< size (: 1015021568 i32)) small usual) sign)))

(defn pack-fp8 [x]
  (let [[n size] (shape x)
        largest (reduce max 0 (sizes-of x))
        power (fn [r] (power-for (at largest r)))
        number (fn [r i]
                 (let [over (arith.bitcast {:result f32} (arith.subi (: 2130706432 i32) (power r)))]
                   (nearest-e4m3 (* (cast (at x r i) f32) over))))]
    (bytes-behind n power 4 number size)))

(defn unpack-fp8 [rows] (cast (fp8 rows) bf16))

; ---- q8_0: 32 signed bytes times a scale in f16, as llama.cpp's

(defn pack-q8_0 [x]
  (let [[n size] (shape x)
        count (quot size 32)
        blocks (reshape x [(* n count) 32])
        largest (reduce max 0 (sizes-of blocks))
        scale (fn [b]
                (arith.truncf {:result f16} (min 65504.0 (/ (arith.bitcast {:result f32} (at largest b)) 127.0))))
        word (fn [b] (arith.extui {:result i32} (arith.bitcast {:result i16} (scale b))))
        number (fn [b i]
                 (let [scale (cast (scale b) f32)]
                   (saturate (select (> scale 0.0) (/ (cast (at blocks b i) f32) scale) 0.0) i32)))]
    (reshape (bytes-behind (* n count) word 2 number 32) [n (* 34 count)])))

(defn unpack-q8_0 [rows] (cast (q8_0 rows) bf16))
