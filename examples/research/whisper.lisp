; Whisper ("Robust Speech Recognition", Radford et al. 2022): an encoder of a sound's spectrum, two convolutions and layers of
; attention, and a decoder of words that looks at it.
(require nn arrays convolutions training)
(config vocab 48  mels 6  frames 12  context 8  layers 2  heads 2  width 16)
(weights (one-w [width mels 3] {:init (normal 0.2)}) (one-b [width]) (two-w [width width 3] {:init (normal 0.1)}) (two-b [width])
  (moments [(quot frames 2) width] {:init (normal 0.1)}) (table [vocab width] {:init (normal 0.1)})
  (places [context width] {:init (normal 0.02)}) (read-e [width] {:init 1}) (read-f [width]) (write-e [width] {:init 1}) (write-f [width])
  (per layers (read-n [width] {:init 1}) (read-m [width]) (read-qkv [(* 3 width) width]) (read-q [width]) (read-v [width])
    (read-out [width width]) (read-o [width]) (read-g [width] {:init 1}) (read-h [width])
    (read-up [(* 4 width) width]) (read-u [(* 4 width)]) (read-down [width (* 4 width)]) (read-d [width])
    (write-n [width] {:init 1}) (write-m [width]) (write-qkv [(* 3 width) width]) (write-q [width]) (write-v [width])
    (write-out [width width]) (write-o [width])
    (look-n [width] {:init 1}) (look-m [width]) (look-to [width width]) (look-q [width]) (look-kv [(* 2 width) width])
    (look-v [width]) (look-out [width width]) (look-o [width]) (write-g [width] {:init 1}) (write-h [width])
    (write-up [(* 4 width) width]) (write-u [(* 4 width)]) (write-down [width (* 4 width)]) (write-d [width])))

(defn flat [x] (reshape x [(* (dim x 0) (dim x 1)) (dim x 2)]))
(defn normed [x w b] (reshape (layer-norm (flat x) w b) (shape x)))
(defn times [x w & b] (reshape (fold + (matmul-transposed (flat x) w) b) [(dim x 0) (dim x 1) (dim w 0)]))
(defn in-heads [x] (reshape x [(dim x 0) (dim x 1) heads (quot width heads)]))
(defn with [x b] (tensor [n (dim x 0) t (dim x 1) c width] (+ (at x n t c) (at b c))))
(defn attended [q k v w b options]
  (times (reshape (attention-to (in-heads q) (in-heads k) (in-heads v) options) [(dim q 0) (dim q 1) width]) w b))
(defn self-attended [x w q-b v-b out o options]
  (let [[q k v] (split (times x w) [width width width] 2)]
    (attended (with q q-b) k (with v v-b) out o options)))
(defn hidden [x up u down d] (times (gelu-exact (times x up u)) down d))
(defn placed [x at-places] (tensor [n (dim x 0) t (dim x 1) c width] (+ (at x n t c) (at at-places t c))))

(defn read [x l]
  (let [x (+ x (self-attended (normed x (read-n l) (read-m l)) (read-qkv l) (read-q l) (read-v l) (read-out l) (read-o l) {}))]
    (+ x (hidden (normed x (read-g l) (read-h l)) (read-up l) (read-u l) (read-down l) (read-d l)))))
(defn written [x l known]
  (let [x (+ x (self-attended (normed x (write-n l) (write-m l)) (write-qkv l) (write-q l) (write-v l) (write-out l) (write-o l)
                              {:causal true}))
        [k v] (split (times known (look-kv l)) [width width] 2)
        q (times (normed x (look-n l) (look-m l)) (look-to l) (look-q l))
        x (+ x (attended q k (with v (look-v l)) (look-out l) (look-o l) {}))]
    (+ x (hidden (normed x (write-g l) (write-h l)) (write-up l) (write-u l) (write-down l) (write-d l)))))

(entry fit [(sound [batch frames mels] f32) (tokens [batch after] i32) (targets [batch after] i32)]
  (let [[n after] (shape tokens)
        x (gelu-exact (with (convolution sound one-w {:padding 1}) one-b))
        x (gelu-exact (with (convolution x two-w {:padding 1 :strides 2}) two-b))
        known (normed (fold read (placed x moments) (range layers)) read-e read-f)
        x (placed (reshape (rows table (reshape tokens [(* n after)])) [n after width]) places)
        x (normed (fold (fn [x l] (written x l known)) x (range layers)) write-e write-f)
        [loss right] (cross-entropy (matmul-transposed (flat x) table) (reshape targets [(* n after)]) vocab)]
    {:loss loss :right right}))
(training fit)
