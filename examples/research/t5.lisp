; T5 ("Exploring the Limits of Transfer Learning", Raffel et al. 2020): an encoder and a decoder whose attention knows how
; far words are apart, by classes of distances: near ones are alone in theirs, far ones share them.
(require nn arrays training)
(config vocab 48  layers 2  heads 2  width 16  hidden 24  classes 8  farthest 6)
(weights (table [vocab width] {:init (normal 0.5)}) (read-near [classes heads]) (write-near [classes heads])
  (read-end [width] {:init 1}) (write-end [width] {:init 1})
  (per layers (read-n [width] {:init 1}) (read-qkv [(* 3 width) width]) (read-out [width width])
    (read-m [width] {:init 1}) (read-up [hidden width]) (read-down [width hidden])
    (write-n [width] {:init 1}) (write-qkv [(* 3 width) width]) (write-out [width width])
    (look-n [width] {:init 1}) (look-q [width width]) (look-kv [(* 2 width) width]) (look-out [width width])
    (write-m [width] {:init 1}) (write-up [hidden width]) (write-down [width hidden])))

(defn normed [x w] (reshape (rms-norm (reshape x [(* (dim x 0) (dim x 1)) width]) w 1e-6) (shape x)))
(defn times [x w] (let [[b t c] (shape x)] (reshape (matmul-transposed (reshape x [(* b t) c]) w) [b t (dim w 0)])))
(defn parts-of [x n]
  (map (fn [part] (reshape part [(dim x 0) (dim x 1) heads (quot width heads)])) (split x (map (fn [_] width) (range n)) 2)))
(defn attended [q k v out options]
  (times (reshape (attention-to q k v (merge options {:scale 1.0})) [(dim q 0) (dim q 1) width]) out))
(defn words [ids] (reshape (rows table (reshape ids [(* (dim ids 0) (dim ids 1))])) [(dim ids 0) (dim ids 1) width]))

; of so many classes, the one of two words that are n apart
(defn class-of [n count]
  (let [alone (quot count 2)
        ends (map (fn [k] (* alone (pow (/ (* 1.0 farthest) alone) (/ (* 1.0 k) alone)))) (range 1 alone))]
    (select (< n alone) n (fold (fn [class end] (+ class (select (>= (cast n f32) (- end 1e-4)) (: 1 i32) (: 0 i32)))) (: alone i32) ends))))
(defn bias-of [near length both-ways]
  (let [half (quot classes 2)
        class (tensor [q length k length]
                (let [ahead (- (cast k i32) (cast q i32))]
                  (if both-ways
                    (+ (class-of (max ahead (- 0 ahead)) half) (select (> ahead 0) (: half i32) (: 0 i32)))
                    (class-of (max 0 (- 0 ahead)) classes))))]
    (transpose (reshape (rows near (reshape class [(* length length)])) [1 length length heads]) [0 3 1 2])))

(defn read [x l options]
  (let [[q k v] (parts-of (times (normed x (read-n l)) (read-qkv l)) 3)
        x (+ x (attended q k v (read-out l) options))]
    (+ x (times (relu (times (normed x (read-m l)) (read-up l))) (read-down l)))))
(defn written [x l known mask options]
  (let [[q k v] (parts-of (times (normed x (write-n l)) (write-qkv l)) 3)
        x (+ x (attended q k v (write-out l) options))
        [q] (parts-of (times (normed x (look-n l)) (look-q l)) 1)
        [k v] (parts-of (times known (look-kv l)) 2)
        x (+ x (attended q k v (look-out l) {:mask mask}))]
    (+ x (times (relu (times (normed x (write-m l)) (write-up l))) (write-down l)))))

(entry fit [(source [batch length] i32) (mask [batch length] i32) (tokens [batch after] i32) (targets [batch after] i32)]
  (let [[n after] (shape tokens)
        near {:mask mask :bias (bias-of read-near (dim source 1) true)}
        known (normed (fold (fn [x l] (read x l near)) (words source) (range layers)) read-end)
        near {:causal true :bias (bias-of write-near after false)}
        x (normed (fold (fn [x l] (written x l known mask near)) (words tokens) (range layers)) write-end)
        scores (matmul-transposed (reshape (* x (rsqrt (* 1.0 width))) [(* n after) width]) table)
        [loss right] (cross-entropy scores (reshape targets [(* n after)]) vocab)]
    {:loss loss :right right}))
(training fit)
